"""A report for people at a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from utils.report.comparison import HEADS, Comparison
from utils.report.content import Report
from utils.verdicts import Outcome

COLOUR = {
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.NOT_MEASURED: "yellow",
    Outcome.INCONCLUSIVE: "yellow",
}


def show(report: Report, console: Console) -> None:
    """Print the verdicts, then what explains them; what matters most comes last, at the prompt."""
    table = Table("verdict", "cell", "check", "measured", "limits", "source of the limits")
    for row in reversed(report.rows):
        colour = COLOUR[row.outcome]
        told = (row.name, row.verdict.check, row.measured, row.limits, row.source)
        table.add_row(
            f"[{colour}]{row.outcome.value.upper()}[/]", *(escape(plain(text)) for text in told)
        )
    console.print(table)
    shares = Table("cell", "draft position", "accepted / steps", "given the one before")
    for texts in report.positions:
        shares.add_row(*(escape(plain(text)) for text in texts))
    if shares.row_count:
        console.print(shares)
    for note in report.notes:
        console.print(escape(plain(note)))
    if report.comparison:
        changes(report.comparison, console)
    if report.not_compared:
        console.print(f"not compared: {plain(report.not_compared)}", markup=False)
    for row in reversed(report.red):
        console.print(
            f"[{COLOUR[row.outcome]}]{escape(plain(row.name))}[/] {escape(plain(row.why))}"
        )
    console.print(f"{report.headline} ({report.summary})", style="bold", markup=False)


def changes(found: Comparison, console: Console) -> None:
    """Print what changed since a baseline, the worst last."""
    table = Table(*HEADS)
    for c in reversed(found.changes):
        table.add_row(*(escape(plain(text)) for text in c.texts()))
    console.print(table)
    for name in found.added:
        console.print(f"not in the baseline: {plain(name)}", markup=False)


def plain(text: str) -> str:
    """Without characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
