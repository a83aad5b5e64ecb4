"""A report for people at a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from utils.report.comparison import Comparison
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
        texts = (row.name, row.verdict.check, row.measured, row.limits, row.source)
        table.add_row(
            f"[{colour}]{row.outcome.value.upper()}[/]", *(escape(plain(text)) for text in texts)
        )
    console.print(table)
    shares = Table("cell", "draft position", "accepted / steps", "given the one before")
    for length in report.lengths:
        pairs = zip(length.per_position, length.conditional, strict=True)
        for position, (share, given) in enumerate(pairs, start=1):
            last = "—" if given is None else f"{given:.4f}"
            shares.add_row(escape(plain(length.cell)), str(position), f"{share:.4f}", last)
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
    table = Table("change", "cell", "metric", "before", "after", "by", "noise", "what else differs")
    for c in reversed(found.changes):
        before, after = ("—" if v is None else f"{v:.4f}" for v in (c.before, c.after))
        name = f"{c.subject}: {c.cell}"
        texts = (c.judgement.value, name, c.metric, before, after, c.words(), c.noise, c.differs)
        table.add_row(*(escape(plain(text)) for text in texts))
    console.print(table)
    for name in found.added:
        console.print(f"not in the baseline: {plain(name)}", markup=False)


def plain(text: str) -> str:
    """Without characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
