"""Verdicts as annotations of a GitHub Actions run: workflow commands on standard output."""

from __future__ import annotations

from collections.abc import Iterator

from utils.report.content import Report
from utils.verdicts import Outcome

# GitHub shows ten of each level a step, and drops the others without a word.
MOST = 10
LEVEL = {
    Outcome.FAIL: "error",
    Outcome.NOT_MEASURED: "error",
    Outcome.INCONCLUSIVE: "warning",
}


def render(report: Report) -> Iterator[str]:
    """One line a verdict that isn't a pass; the last of a level says how many it stands for."""
    for level in ("error", "warning"):
        rows = [row for row in report.red if LEVEL[row.outcome] == level]
        shown = rows if len(rows) <= MOST else rows[: MOST - 1]
        for row in shown:
            yield _command(level, f"{row.outcome.value}: {row.name}", row.line)
        if len(rows) > len(shown):
            text = f"{len(rows) - len(shown)} more; the step summary and report.html have them all"
            yield _command(level, report.headline, text)


def _command(level: str, title: str, message: str) -> str:
    name = _data(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{_data(message)}"


def _data(text: str) -> str:
    """So that no line of a log ends the command and starts one of its own."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
