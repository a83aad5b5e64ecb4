"""A report for people at a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from utils.report.content import HEADLINE, Report
from utils.verdicts import Outcome

COLOUR = {
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.NOT_MEASURED: "yellow",
    Outcome.INCONCLUSIVE: "yellow",
}


def show(report: Report, console: Console) -> None:
    """Print the verdicts first, then what explains them."""
    table = Table("verdict", "cell", "check", "measured", "limits", "source of the limits")
    for row in report.rows:
        colour = COLOUR[row.outcome]
        texts = (row.cell, row.check, row.measured, row.limits, row.source)
        table.add_row(f"[{colour}]{row.outcome.value.upper()}[/]", *map(escape, texts))
    console.print(table)
    for row in report.rows:
        if row.why:
            console.print(f"[{COLOUR[row.outcome]}]{escape(row.cell)}[/] {escape(row.why)}")
    if report.positions:
        shares = Table("cell", "draft position", "accepted / steps", "given the one before")
        for p in report.positions:
            shares.add_row(p.cell, str(p.position), p.accepted, p.conditional)
        console.print(shares)
    for note in report.notes:
        console.print(escape(note))
    console.print(f"{HEADLINE[report.status]} ({report.summary})", style="bold", markup=False)
