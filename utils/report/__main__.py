"""Render a directory of results, of one run or of many jobs, anew from its records."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from utils import errors, records
from utils.errors import NotMeasured, UsageError
from utils.evals import thresholds, validate_scores
from utils.evals.validate_scores import Options
from utils.golden.registry import FOLDER
from utils.report import content, junit, markdown, workflow_commands
from utils.report.content import Report
from utils.verdicts import Verdict

if TYPE_CHECKING:
    from rich.console import Console

MIN_WIDTH = 150


def main(argv: Sequence[str] | None = None) -> int:
    """0 when rendered, whatever the verdicts are: the gate's status is the gate's to give.

    compare: 1 when something got worse than noise explains, 3 when something is no longer measured.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    command = COMMANDS.get(words[0]) if words else None
    try:
        return command(words[1:]) if command else _render(words)
    except ImportError as error:
        raise UsageError(
            f"pages and tables need {error.name}, which this Python lacks: run `make setup` and "
            "use .venv/bin/python; summary.md, comment.md and junit.xml need nothing, and are made"
        ) from error


def _render(words: Sequence[str]) -> int:
    parser = _parser("", __doc__)
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR", help="of one run, or of the artifacts of many jobs")
    add("--output", type=Path, metavar="DIR", help="where the files go; default: DIR itself")
    add("--annotations", action="store_true", help="print verdicts as GitHub's ::error lines")
    add("--expected-concs", type=validate_scores.concurrencies, help="as the gate was given them")
    add("--baseline", type=Path, metavar="PAST", help="what to compare with, as of compare")
    args = parser.parse_args(words)
    options = _options(args)
    report = content.gather(args.directory, options)
    refusal = _compare_with(report, args.baseline, options) if args.baseline else None
    output = args.output or args.directory
    _write_texts(report, output)
    if args.annotations:
        print("\n".join(workflow_commands.render(report)), flush=True)
    _write_page(report, output)
    if refusal:
        raise refusal
    return errors.PASS


def _compare_with(report: Report, path: Path, options: Options) -> UsageError | None:
    """Compare with a baseline; what can't be compared is still reported on, and refused after."""
    from utils.report import baseline, comparison, past_run

    try:
        run = past_run.of(report)
        report.comparison = comparison.compare(baseline.choose(path, run, options), run)
    except NotMeasured as error:  # a first run has no baseline yet
        report.not_compared = str(error)
    except UsageError as error:
        report.not_compared = str(error)
        return error
    return None


def _compare(words: Sequence[str]) -> int:
    """Compare run B with A: directories of results or stored runs; A may be a store of them."""
    from utils.report import baseline, comparison, terminal

    parser = _parser("compare", _compare.__doc__)
    parser.add_argument("a", type=Path, metavar="A")
    parser.add_argument("b", type=Path, metavar="B")
    args = parser.parse_args(words)
    options = _options(args)
    run = baseline.load(args.b, options)
    found = comparison.compare(baseline.choose(args.a, run, options), run)
    console = _console()
    terminal.changes(found, console)
    console.print(f"against {found.baseline}", markup=False)
    return found.status


def _store(words: Sequence[str]) -> int:
    """Keep a run for later comparisons: one JSON file in a folder of past runs."""
    from utils.report import past_run

    parser = _parser("store", _store.__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="results, as for a report")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER")
    args = parser.parse_args(words)
    run = past_run.of(content.gather(args.directory, _options(args)))
    print(past_run.write(run, args.into))
    return errors.PASS


COMMANDS = {"compare": _compare, "store": _store}


def _parser(command: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"utils.report {command}".rstrip(), description=description, allow_abbrev=False
    )
    parser.add_argument("--thresholds", type=Path, default=thresholds.FILE, metavar="F")
    parser.add_argument("--golden", type=Path, default=FOLDER, metavar="DIR")
    return parser


def _options(args: argparse.Namespace) -> Options:
    concs = getattr(args, "expected_concs", None)
    return Options(expected_concs=concs, thresholds=args.thresholds, golden=args.golden)


def _write_texts(report: Report, output: Path) -> None:
    """What needs nothing but Python: it is there even where the page can't be made."""
    records.write_text(output / "summary.md", markdown.summary(report))
    records.write_text(output / "comment.md", markdown.comment(report))
    suites: dict[str, list[Verdict]] = {}
    for row in report.rows:
        suites.setdefault(row.job, []).append(row.verdict)
    records.write_text(output / "junit.xml", junit.render(suites))
    if step_summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        _append(Path(step_summary), report)


def _append(path: Path, report: Report) -> None:
    """To the step's summary, in the room that is left of GitHub's limit."""
    taken = path.stat().st_size if path.exists() else 0
    with path.open("a", encoding="utf-8") as file:
        file.write(markdown.summary(report, markdown.SUMMARY_BYTES - taken))


def _write_page(report: Report, output: Path) -> None:
    from utils.report import page, terminal

    records.write_text(output / "report.html", page.render(report))
    console = _console()
    terminal.show(report, console)
    lines = f"results: {report.directory}\nreport: {output / 'report.html'}, summary.md, junit.xml"
    console.print(lines, markup=False, soft_wrap=True)


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=MIN_WIDTH)  # a CI log has none


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
