"""A report as GitHub Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from utils.report.content import HEADLINE, Report
from utils.verdicts import Outcome

MARK = {
    Outcome.PASS: "✅ pass",
    Outcome.FAIL: "❌ fail",
    Outcome.NOT_MEASURED: "⚠️ not measured",
    Outcome.INCONCLUSIVE: "❔ inconclusive",
}


def render(report: Report) -> str:
    """The whole report; ends with a newline."""
    rows = [(MARK[r.outcome], r.cell, r.check, r.measured, r.limits, r.source) for r in report.rows]
    parts = [
        f"## {HEADLINE[report.status]}",
        report.summary,
        *_bullets(f"**{row.cell}** {row.why}" for row in report.rows if row.why),
        _table(("verdict", "cell", "check", "measured", "limits", "source of the limits"), rows),
    ]
    if report.positions:
        shares = [(p.cell, str(p.position), p.accepted, p.conditional) for p in report.positions]
        heads = ("cell", "draft position", "accepted / steps", "given the position before")
        parts += ["### Acceptance by position", _table(heads, shares)]
    parts += [*_bullets(report.notes)]
    if report.facts:
        parts += ["### What ran", _table(("", ""), report.facts)]
    parts += [f"Files in `{report.directory}`: {', '.join(f'`{p.name}`' for p in report.files)}"]
    return "\n\n".join(parts) + "\n"


def _bullets(lines: Iterable[str]) -> list[str]:
    text = "\n".join(f"- {_escape(line)}" for line in lines)
    return [text] if text else []


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(map(_escape, row)) + " |" for row in rows]
    return "\n".join(lines)


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
