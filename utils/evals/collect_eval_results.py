#!/usr/bin/env python3
"""Artifacts of many jobs → one table: every result is in it, or listed with the reason why not."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[2])

import argparse
from collections.abc import Sequence

from utils import errors, records
from utils.errors import UsageError
from utils.evals import job_results, result_rows, result_tables, thresholds
from utils.golden.registry import FOLDER


def main(argv: Sequence[str] | None = None) -> int:
    """0: everything that was asked for is there; 3: it isn't."""
    args = _parser().parse_args(argv)
    if not args.root.is_dir():
        raise UsageError(f"{args.root}: no such directory")
    if args.root.resolve() in (args.out.resolve(), *args.out.resolve().parents):
        raise UsageError(f"{args.out} is inside {args.root}: the next run would collect it")
    jobs = job_results.read(args.root, args.thresholds, args.golden)
    table = result_rows.table(jobs)
    records.write_json(args.out / "eval_results.json", table, "eval_results")
    records.write_text(args.out / "eval_results.md", result_tables.markdown(table))
    records.write_text(args.out / "eval_results.csv", result_tables.csv_text(table))
    print(f"{result_tables.headline(table)}; {args.out}/eval_results.{{json,md,csv}}")
    for item in (*table["missing"], *table["undecided"]):
        print(f"  {item['cell']}: {item['reason']}")
    for item in table["dropped"]:
        print(f"  dropped {item['file']}: {item['reason']}")
    return errors.PASS if table["complete"] else errors.NOT_MEASURED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="collect_eval_results", description=__doc__)
    parser.add_argument("root", type=Path, help="folder with the artifacts of each job in its own")
    parser.add_argument("out", type=Path, help="where eval_results.json, .md and .csv go")
    parser.add_argument("--thresholds", type=Path, default=thresholds.FILE, metavar="F")
    parser.add_argument("--golden", type=Path, default=FOLDER, metavar="DIR")
    return parser


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
