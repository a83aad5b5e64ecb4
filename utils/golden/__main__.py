"""Look after the golden acceptance lengths: check them, show them, make them from AL records."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from utils import errors
from utils.golden import collection, gate, registry
from utils.golden.registry import Golden

DIP = 0.02


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.command == "collect":
        print(collection.collect(args.records, args.output, args.hardware, args.source))
        return errors.PASS
    goldens = registry.load(args.golden).goldens
    return lint(args.golden, goldens) if args.command == "lint" else show(goldens)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m utils.golden", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("lint", "check every golden file"), ("show", "print the curves")):
        add = commands.add_parser(name, help=text).add_argument
        add("--golden", type=Path, default=gate.GOLDEN_DIR, help="folder of golden files")
    add = commands.add_parser("collect", help="put AL records into a golden file").add_argument
    add("records", nargs="+", type=Path, metavar="RECORD", help="version 2 AL records")
    add("--output", required=True, type=Path, help="golden file to make, or to add runs to")
    add("--hardware", required=True, help="what the records were measured on, e.g. '8x B300'")
    add("--source", help="URL or text, for a new file")
    return parser


def lint(folder: Path, goldens: Sequence[Golden]) -> int:
    """What breaks a rule was refused on reading; this warns of what a person should look at."""
    files = registry.golden_files(folder)
    warnings = [*_misnamed(goldens), *_dips(goldens)]
    for warning in warnings:
        print(f"warning: {warning}")
    print(f"{len(files)} golden files, {len(goldens)} values, {len(warnings)} warnings")
    return errors.PASS


def _misnamed(goldens: Sequence[Golden]) -> Iterator[str]:
    for file, prefix in sorted({(golden.file, golden.prefix) for golden in goldens}):
        if not file.startswith(f"{prefix}_"):
            yield f"{file}: call it {prefix}_<method>.yaml, that is how people look for it"


def _dips(goldens: Sequence[Golden]) -> Iterator[str]:
    """With one drafter, a longer draft can't lower the AL; a dip shows how far runs differ."""
    for curve in _curves(goldens):
        for shorter, longer in pairwise(curve):
            fall = 1 - longer.acceptance_length / shorter.acceptance_length
            if fall > DIP:
                yield f"{longer}: {fall:.1%} below N={shorter.key['num_speculative_tokens']}"


def _curves(goldens: Sequence[Golden]) -> Iterator[list[Golden]]:
    """Goldens that differ in N alone, N rising."""

    def curve(golden: Golden) -> tuple[str, str]:
        rest = {**golden.key, "num_speculative_tokens": 0}
        return golden.file, repr(sorted(rest.items()))

    def order(golden: Golden) -> tuple[tuple[str, str], int]:
        return curve(golden), golden.key["num_speculative_tokens"]

    for _, group in groupby(sorted(goldens, key=order), key=curve):
        yield list(group)


def show(goldens: Sequence[Golden]) -> int:
    from rich.console import Console
    from rich.table import Table

    lengths = sorted({golden.key["num_speculative_tokens"] for golden in goldens})
    table = Table("golden", "thinking", "runs", *(f"N={n}" for n in lengths))
    for curve in _curves(goldens):
        values = {g.key["num_speculative_tokens"]: f"{g.acceptance_length:.2f}" for g in curve}
        runs = "imported" if curve[0].imported else str(min(len(g.run_lengths) for g in curve))
        table.add_row(
            curve[0].file, curve[0].key["thinking"], runs, *(values.get(n, "") for n in lengths)
        )
    Console().print(table)
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
