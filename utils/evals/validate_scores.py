#!/usr/bin/env python3
"""The gate: nothing in a result directory passes without having been measured."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[2])

import argparse
import gc
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from utils import errors, records
from utils.errors import NotMeasured, UsageError
from utils.evals import expected, thresholds
from utils.evals.join import Join
from utils.golden.registry import FOLDER, Registry
from utils.verdicts import Outcome, Verdict, exit_status, one_line

EXCERPT = 2000  # characters of one field
WORST_LAST = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.NOT_MEASURED, Outcome.FAIL)


@dataclass(frozen=True)
class Options:
    """How to judge; the defaults are what a run in a result directory needs."""

    expected_concs: Sequence[int] | None = None
    thresholds: Path = thresholds.FILE
    golden: Path = FOLDER
    meta_env: Path | None = None
    model_prefix: str | None = None
    results_glob: str = "*.json"
    min_score: float | None = None


def validate(directory: Path, options: Options | None = None) -> list[Verdict]:
    """All verdicts on a result directory, the worst last.

    Raises:
        UsageError: the directory, a thresholds or a golden file is unusable.
    """
    return _judge(directory, options or Options())[0]


def _judge(directory: Path, options: Options) -> tuple[list[Verdict], list[str]]:
    """Verdicts, and the names of JSON files that are no results."""
    if not directory.is_dir():
        raise UsageError(f"--results-dir {directory}: no such directory")
    rules = thresholds.load(options.thresholds, options.min_score)
    asked = expected.load(directory, options.meta_env, options.expected_concs, options.model_prefix)

    @cache
    def goldens() -> Registry:
        from utils.golden import registry

        return registry.load(options.golden)

    verdicts, ignored = Join(directory, asked, rules, goldens).verdicts(options.results_glob)
    return sorted(verdicts, key=lambda v: WORST_LAST.index(v.outcome)), ignored


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    options = Options(
        expected_concs=args.expected_concs,
        thresholds=args.thresholds,
        golden=args.golden,
        meta_env=args.meta_env,
        model_prefix=args.model_prefix,
        results_glob=args.results_glob,
        min_score=args.min_score,
    )
    verdicts, ignored = _judge(args.results_dir, options)
    status = exit_status(verdicts)
    if args.explain:
        status = _explain(args, verdicts)
    elif args.json:
        rows = [verdict.as_json() for verdict in verdicts]
        report = {"verdicts": rows, "summary": summary(verdicts), "status": status}
        print(json.dumps({**report, "ignored": ignored}, indent=2, sort_keys=True))
    else:
        # In one piece: CI shows output as it comes, between that of other tools.
        print("\n".join(_lines(verdicts, ignored)), flush=True)
    if args.junit:
        from utils.report import junit  # slow to import, and only for this

        records.write_text(args.junit, junit.render({"": verdicts}))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="validate_scores", description=__doc__, allow_abbrev=False
    )
    add = parser.add_argument
    add("--results-dir", type=Path, default=Path(), help="default: the current one")
    add("--expected-concs", type=concurrencies, help='CI\'s own copy of the request: "1 32"')
    add("--thresholds", type=Path, default=thresholds.FILE, metavar="F")
    add("--golden", type=Path, default=FOLDER, metavar="DIR")
    add("--meta-env", type=Path, metavar="F", help="default: meta_env.json in the directory")
    add("--model-prefix", metavar="P", help="default: by plan.json or meta_env.json")
    add("--results-glob", default="*.json", metavar="G", help="names of files to look at")
    add("--min-score", type=_share, metavar="X", help="for tasks without a threshold")
    add("--json", action="store_true", help="print verdicts as JSON")
    add("--junit", type=Path, metavar="F", help="write JUnit XML too")
    add("--explain", metavar="CELL", help="print all that is known of one cell's verdicts")
    return parser


def concurrencies(text: str) -> list[int]:
    """Of a list such as "1 32", for argparse."""
    words = text.replace(",", " ").split()
    if not words or not all(re.fullmatch("[1-9][0-9]*", word) for word in words):
        raise argparse.ArgumentTypeError(f'{text!r} is not a list such as "1 32"')
    values = [int(word) for word in words]
    if len(set(values)) != len(values):
        raise argparse.ArgumentTypeError(f"{text!r} names one concurrency twice")
    return values


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number in 0..1")
    return value


def _lines(verdicts: Sequence[Verdict], ignored: Sequence[str]) -> list[str]:
    note = [one_line(f"note: no results, ignored: {', '.join(ignored)}")] if ignored else []
    return [*note, *(verdict.line() for verdict in verdicts), summary(verdicts)]


def summary(verdicts: Sequence[Verdict]) -> str:
    """Such as "3 passed, 1 not measured, 1 failed"."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    words = {
        Outcome.PASS: "passed",
        Outcome.FAIL: "failed",
        Outcome.NOT_MEASURED: "not measured",
        Outcome.INCONCLUSIVE: "inconclusive",
    }
    return ", ".join(
        f"{counts[outcome]} {word}"
        for outcome, word in words.items()
        if counts[outcome] or outcome is Outcome.PASS
    )


def _explain(args: argparse.Namespace, verdicts: Sequence[Verdict]) -> int:
    directory, cell = args.results_dir, args.explain
    chosen = [verdict for verdict in verdicts if verdict.cell == cell]
    if not chosen:
        cells = "; ".join(sorted({verdict.cell for verdict in verdicts}))
        raise UsageError(f"--explain: no cell {cell!r}; there are {cells}")
    for verdict in chosen:
        content = {name: _excerpt(directory / name) for name in verdict.evidence}
        shown = {**verdict.as_json(), "content": content}
        if cell.startswith("AL "):
            shown["causes"] = _causes(directory, verdict, args.golden)
        print(json.dumps(shown, indent=2, sort_keys=True))
    return exit_status(chosen)


def _causes(directory: Path, verdict: Verdict, golden: Path) -> list[str]:
    """What can have made the acceptance length what it is, the best founded first."""
    from utils.golden import forensics, registry

    goldens = registry.load(golden).goldens
    lines: list[str] = []
    for name in verdict.evidence:
        try:
            lines += forensics.lines(forensics.read(directory / name, goldens))
        except NotMeasured as error:
            lines.append(str(error))
    return lines


def _excerpt(path: Path) -> object:
    """A file's content without its large parts, such as the raw part of an AL record."""
    try:
        data = records.read_json(path)
    except NotMeasured as error:
        return str(error)
    if not isinstance(data, dict):
        return "not an object"
    small = {name: value for name, value in data.items() if len(json.dumps(value)) <= EXCERPT}
    return {**small, "left_out": sorted(data.keys() - small.keys())}


if __name__ == "__main__":
    gc.disable()  # JSON has no cycles, and this process ends soon
    raise SystemExit(errors.run(main))
