#!/usr/bin/env python3
"""Golden acceptance lengths: collect, check and draw them, explain a miss, force one."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[2])

import argparse
import os
from collections.abc import Sequence

from utils import errors
from utils.arguments import count
from utils.errors import UsageError
from utils.golden.registry import FOLDER
from utils.models import near


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    cut = given.index("--") if "--" in given else len(given)
    args = _parser().parse_args(given[:cut])
    if given[cut + 1 :] and args.command != "collect":
        raise UsageError(f"{args.command} takes nothing after --")
    if args.command == "collect":
        return _collect(args, given[cut + 1 :])
    commands = {
        "assemble": _assemble,
        "lint": _lint,
        "show": _show,
        "explain": _explain,
        "export": _export,
    }
    return commands[args.command](args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m utils.golden", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text, arguments in (
        ("collect", "measure a curve, a fresh server a cell; a second call goes on", _collect_args),
        ("assemble", "AL records → a golden file", _assemble_args),
        ("lint", "check every golden file", None),
        ("show", "draw the curves", _show_args),
        ("explain", "why a record misses its golden: causes, ranked", _explain_args),
        ("export", "an engine's setting that forces a golden AL, for throughput", _export_args),
    ):
        added = commands.add_parser(command, help=text, description=text)
        if arguments:
            arguments(added)
        if command not in ("collect", "assemble"):
            added.add_argument("--golden", type=Path, default=FOLDER, help="folder of golden files")
    return parser


def _collect_args(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "What follows -- goes to `speedbench_al measure`, e.g. -- --num-prompts 4"
    add = parser.add_argument
    add("collection", help="row of `collections` in models.yaml")
    add("--output-dir", required=True, type=Path, help="state, logs, outputs and the candidate")
    add("--hardware", required=True, help="what the servers run on, e.g. '8x B300'")
    add("--thinking", nargs="+", choices=["on", "off"], help="default: by the row")
    add("--num-spec-tokens", nargs="+", type=count, metavar="N", help="default: by the row")
    add("--repeats", type=count, default=1, help="runs of each cell (default: 1)")
    add("--model-revision", help="of the weights (default: by the row, else by the records)")


def _assemble_args(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("records", nargs="+", type=Path, metavar="RECORD", help="version 2 AL records")
    add("--output", required=True, type=Path, help="golden file to make, or to add runs to")
    add("--hardware", required=True, help="what the records were measured on, e.g. '8x B300'")
    add("--model-revision", help="of the weights, where no record can know it")
    add("--source", help="URL or text, for a new file")


def _show_args(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model-prefix", help="of this model alone")
    add("--png", type=Path, metavar="F", help="write the figure")
    add("--html", type=Path, metavar="F", help="write figure and table as one page")


def _explain_args(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("record", type=Path, help="AL record")
    parser.add_argument("--plan", type=Path, help="default: plan.json beside it, if there is one")


def _export_args(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--engine", required=True, help="vllm, sglang, trtllm, atom or llamacpp")
    add("--model-prefix", required=True)
    add("--thinking", required=True, choices=["on", "off"])
    add("--num-spec-tokens", required=True, type=count, metavar="N")
    add("--method", help="and the three below: where a model has several goldens")
    for name in ("--draft-model", "--draft-sample-method", "--rejection-sample-method"):
        add(name)


def _collect(args: argparse.Namespace, options: Sequence[str]) -> int:
    from utils.golden import driver, rows
    from utils.golden.cells import Cell
    from utils.golden.ledger import Order

    row = rows.load(args.collection)
    if "--stop-early" in options:
        raise UsageError("--stop-early: a golden is measured whole")
    for mode in args.thinking or ():
        row.model.mode(mode)
    cells = [
        Cell(mode, n, repeat)
        for repeat in range(1, args.repeats + 1)
        for mode in args.thinking or row.thinking
        for n in args.num_spec_tokens or row.num_speculative_tokens
    ]
    folder = args.output_dir.absolute()
    revision = args.model_revision or row.model_revision
    order = Order(row, cells, folder, args.hardware, revision, tuple(options))
    return driver.dry_run(order) if os.environ.get("DRY_RUN") == "1" else driver.collect(order)


def _assemble(args: argparse.Namespace) -> int:
    from utils.golden import collection

    origin = collection.Origin(args.hardware, args.source, args.model_revision)
    print(collection.assemble(args.records, args.output, origin))
    return errors.PASS


def _lint(args: argparse.Namespace) -> int:
    from utils.golden import lint, registry

    return lint.run(args.golden, registry.load(args.golden).goldens)


def _show(args: argparse.Namespace) -> int:
    from utils.golden import draw, registry

    every, prefix = registry.load(args.golden).goldens, args.model_prefix
    goldens = [golden for golden in every if prefix in (None, golden.prefix)]
    if not goldens:
        remedy = near(prefix or "", {golden.prefix for golden in every})
        raise UsageError(f"{args.golden} has no golden of {prefix or 'any model'}; {remedy}")
    draw.terminal(goldens)
    if args.png:
        draw.png(goldens, args.png)
    if args.html:
        draw.page(goldens, args.html)
    return errors.PASS


def _explain(args: argparse.Namespace) -> int:
    from utils.golden import forensics, registry

    case = forensics.read(args.record, registry.load(args.golden).goldens, args.plan)
    print("\n".join(forensics.lines(case)))
    return errors.PASS


def _export(args: argparse.Namespace) -> int:
    from utils.golden import export, registry

    said = {name: getattr(args, name) for name in registry.DRAFTER}
    goldens = registry.load(args.golden).goldens
    golden = export.choose(goldens, args.model_prefix, args.thinking, args.num_spec_tokens, said)
    print("\n".join(export.lines(args.engine, golden)))
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
