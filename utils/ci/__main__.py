"""What workflows run, and the workflows themselves on this machine (`run`)."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from utils import errors
from utils.errors import UsageError


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.command == "run":
        return rehearse(args.workflow, args.inputs, args.work)
    if args.command == "failsafe":
        from utils.ci import failsafe

        return failsafe.check()
    if args.command == "outputs":
        from utils.ci import outputs

        return outputs.write(args.plan)
    if args.command == "collect":
        from utils.ci import collection

        return collection.collect(args.plan, args.artifacts, args.out)
    if args.command == "comment":
        from utils.ci import comment

        return comment.post(args.report, args.pull_request, args.source)
    if args.command in ("golden-collect", "golden-propose"):
        from utils.ci import golden

        if args.command == "golden-propose":
            return golden.propose(args.collected, args.source, args.branch)
        golden.collect(args)
    from utils.ci import cell

    return (cell.launch if args.command == "launch" else cell.gate)(
        args.plan, args.cell, args.results
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m utils.ci", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("run", help="rehearse a dispatch here").add_argument
    add("workflow", help="its name in .github/workflows, e.g. e2e-tests")
    add("-f", dest="inputs", action="append", default=[], metavar="INPUT=VALUE", help="as for gh")
    add("--work", type=Path, metavar="DIR", help="artifacts and the rest (default: new in /tmp)")
    commands.add_parser("failsafe", help="prove that the gate can be red")
    for name, text in (
        ("outputs", "a plan's matrix as a step's outputs"),
        ("launch", "start a cell of a plan; becomes its launcher"),
        ("gate", "judge a cell's results by the plan"),
        ("collect", "artifacts of a sweep → tables; 1: something failed, 3: something is missing"),
    ):
        add = commands.add_parser(name, help=text).add_argument
        add("--plan", type=Path, required=True, help="folder that `utils.recipes plan` wrote")
        if name in ("launch", "gate"):
            add("--cell", required=True, help="id in sweep.json")
            add("--results", type=Path, required=True)
        if name == "collect":
            add("--artifacts", type=Path, required=True, help="folder with one folder an artifact")
            add("--out", type=Path, required=True)
    add = commands.add_parser("comment", help="a report's verdicts, to a pull request").add_argument
    add("report", type=Path, help="folder that `utils.report` wrote")
    add("--pull-request", type=int, required=True, metavar="NUMBER")
    add("--source", required=True, help="URL of the run")
    add = commands.add_parser("golden-collect", help="prepare prompts, collect").add_argument
    add("collection", help="row of `collections` in models.yaml")
    add("--prompts", type=Path, required=True, help="where prompts are put")
    add("--output-dir", type=Path, required=True, help="records, logs and the candidate")
    add("--hardware", required=True, help="e.g. '8x B300'")
    add("--repeats", default="1")
    for option in ("--num-spec-tokens", "--thinking"):
        add(option, type=str.split, default=[], help="one or several; empty: by the row")
    for option in ("--category", "--output-len"):
        add(option, default="", help="empty: by models.yaml")
    add = commands.add_parser("golden-propose", help="open a pull request").add_argument
    add("collected", type=Path, help="folder that a collection filled")
    add("--source", required=True, help="URL of the run")
    add("--branch", required=True, help="a new branch")
    return parser


def rehearse(workflow: str, given: Sequence[str], work: Path | None) -> int:
    """Run a workflow as a dispatch would: 0 success, 1 something in it failed, 130 cancelled."""
    from utils.ci.shell import Shell
    from utils.ci.twin import CANCELLED, SUCCESS, Secrets, Twin

    if odd := [pair for pair in given if "=" not in pair]:
        raise UsageError(f"-f {odd[0]!r}: want INPUT=VALUE")
    if work and work.exists():
        raise UsageError(f"--work {work} exists already; name a new folder")
    folder = work.absolute() if work else Path(tempfile.mkdtemp(prefix="specgate-ci.", dir="/tmp"))
    shell = Shell()
    with shell.listening():
        inputs = dict(pair.split("=", 1) for pair in given)
        result = Twin(folder, shell).run(workflow, "workflow_dispatch", inputs, Secrets())
    result = CANCELLED if shell.cancelled else result
    print(f"=== {workflow}: {result}; artifacts and summary.md in {folder}", flush=True)
    return {SUCCESS: errors.PASS, CANCELLED: 130}.get(result, errors.FAIL)


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
