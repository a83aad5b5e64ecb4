"""A report as one HTML file: no network, no other file, no text that could become code."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from utils.report import downloads, lengths, measurements, plots
from utils.report.comparison import Judgement
from utils.report.content import Report
from utils.report.lengths import Curve, Length
from utils.verdicts import Outcome

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
MARK = {
    Outcome.PASS: ("pass", "✓", "pass"),
    Outcome.FAIL: ("fail", "✕", "fail"),
    Outcome.NOT_MEASURED: ("unmeasured", "!", "not measured"),
    Outcome.INCONCLUSIVE: ("inconclusive", "?", "inconclusive"),
}
JUDGEMENT = {
    Judgement.WORSE: "fail",
    Judgement.LOST: "unmeasured",
    Judgement.UNKNOWN: "inconclusive",
    Judgement.SAME: "same",
    Judgement.BETTER: "pass",
}
STATUS = {0: Outcome.PASS, 1: Outcome.FAIL, 3: Outcome.NOT_MEASURED}
# Beyond these a page gets slow to open; its tables stay whole.
MOST_CURVES = 40
MOST_DETAILS = 12
MOST_REASONS = 25


@dataclass(frozen=True)
class CurvePlot:
    curve: Curve
    svg: Markup | None


@dataclass(frozen=True)
class Detail:
    """One record's plots; None where it has nothing to draw."""

    length: Length
    positions: Markup | None
    requests: Markup | None
    path: Markup | None


def render(report: Report) -> str:
    """The whole page.

    Raises:
        ImportError: Jinja2 or matplotlib isn't installed.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = _size
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    files = downloads.collect([(job.name, job.folder) for job in report.jobs])
    curves = lengths.curves(report.lengths)
    return environment.get_template("report.html.j2").render(
        report=report,
        status=STATUS[report.status],
        subjects={job.name: measurements.subject(job.about) for job in report.jobs},
        mark=MARK,
        outcomes=list(Outcome),
        judgements=JUDGEMENT,
        most_reasons=MOST_REASONS,
        curves=[CurvePlot(curve, _drawing(plots.curve(curve))) for curve in curves[:MOST_CURVES]],
        all_curves=len(curves),
        details=list(_details(report)),
        files=files,
        embedded=sum(1 for file in files if file.href),
        room=downloads.MOST_BYTES,
        style=_safe((TEMPLATES / "report.css").read_text(encoding="utf-8")),
        script=_safe(script),
        policy=_policy(script),
    )


def _details(report: Report) -> Iterator[Detail]:
    """Plots of the records that have something to show, what is not green first."""
    drawable = [
        length for length in report.lengths if length.per_position or length.rows or length.looks
    ]
    order = {row.outcome: index for index, row in enumerate(reversed(report.rows))}
    drawable.sort(key=lambda length: -order.get(length.outcome, len(order)))
    for length in drawable[:MOST_DETAILS]:
        yield Detail(
            length,
            _drawing(plots.positions(length)),
            _drawing(plots.requests(length)),
            _drawing(plots.path(length)),
        )


def _policy(script: str) -> str:
    """Our script and nothing else runs; nothing is ever fetched."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _drawing(svg: str | None) -> Markup | None:
    return None if svg is None else _safe(svg)


def _safe(text: str) -> Markup:
    """Of what this package wrote itself: style, script and plots. Never of a record's text."""
    from markupsafe import Markup

    return Markup(text)


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
