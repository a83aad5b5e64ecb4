"""A report for people at a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from utils.report import board
from utils.report.comparison import HEADS, Comparison
from utils.report.content import POSITIONS, Report
from utils.verdicts import Outcome, one_line

COLOUR = {
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.NOT_MEASURED: "yellow",
    Outcome.INCONCLUSIVE: "yellow",
}


def show(report: Report, console: Console) -> None:
    """Print the verdicts, then what explains them; what matters most comes last, at the prompt."""
    table = Table(*board.HEADS)
    for row in reversed(report.rows):
        colour = COLOUR[row.outcome]
        table.add_row(
            f"[{colour}]{row.outcome.value.upper()}[/]",
            *(escape(one_line(text)) for text in row.texts),
        )
    console.print(table)
    shares = Table(*POSITIONS)
    for texts in report.positions:
        shares.add_row(*(escape(one_line(text)) for text in texts))
    if shares.row_count:
        console.print(shares)
    for note in report.notes:
        console.print(escape(one_line(note)))
    if report.comparison:
        changes(report.comparison, console)
    if report.not_compared:
        console.print(f"not compared: {one_line(report.not_compared)}", markup=False)
    for row in reversed(report.red):
        console.print(
            f"[{COLOUR[row.outcome]}]{escape(one_line(row.name))}[/] {escape(one_line(row.why))}"
        )
    console.print(f"{report.headline} ({report.summary})", style="bold", markup=False)


def changes(found: Comparison, console: Console) -> None:
    """Print what changed since a baseline, the worst last."""
    table = Table(*HEADS)
    for c in reversed(found.changes):
        table.add_row(*(escape(one_line(text)) for text in c.texts()))
    console.print(table)
    for name in found.added:
        console.print(f"not in the baseline: {one_line(name)}", markup=False)
