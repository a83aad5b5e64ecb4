"""Plots as SVG for a page: matplotlib draws, the page's style sheet colours."""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from utils.report.lengths import Band, Curve, Length
from utils.verdicts import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# matplotlib draws in these, and they become the style sheet's variables: light, dark and print
# are then the page's business.
INK, MUTED, LINE, BAND, ACCENT = "#010101", "#020202", "#030303", "#040404", "#050505"
PASS, FAIL, UNMEASURED, INCONCLUSIVE = "#060606", "#070707", "#080808", "#090909"
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    BAND: "var(--band)",
    ACCENT: "var(--accent)",
    PASS: "var(--pass)",
    FAIL: "var(--fail)",
    UNMEASURED: "var(--unmeasured)",
    INCONCLUSIVE: "var(--inconclusive)",
}
# Shape and colour: neither is the only signal.
MARKS = {
    Outcome.PASS: ("o", PASS, "pass"),
    Outcome.FAIL: ("X", FAIL, "fail"),
    Outcome.NOT_MEASURED: ("v", UNMEASURED, "not measured"),
    Outcome.INCONCLUSIVE: ("D", INCONCLUSIVE, "inconclusive"),
}
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "specgate",
    "text.parse_math": False,  # a name may hold a dollar
    "font.size": 9.0,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "text.color": INK,
}


def curve(found: Curve) -> str | None:
    """AL over N: the goldens' limits as boxes, what was measured as points with 95 % intervals."""
    points = [length for length in found.lengths if length.acceptance_length is not None]
    if not points and not found.bands:
        return None
    figure, axes = _axes("draft length N", "acceptance length")
    for index, band in enumerate(found.bands):
        _band(axes, band, "golden and its limits" if index == 0 else "")
    shown: set[Outcome] = set()
    for length, x in zip(points, _beside([length.n for length in points]), strict=True):
        _point(axes, length, x, length.outcome not in shown)
        shown.add(length.outcome)
    _whole_numbers(axes, [*(band.n for band in found.bands), *(p.n for p in points)])
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.16), ncols=3, handletextpad=0.4)
    return _svg(figure)


def positions(length: Length) -> str | None:
    """Acceptance at each draft position: of all steps, and of those that got so far."""
    if not length.per_position:
        return None
    figure, axes = _axes("draft position", "share accepted")
    numbers = range(1, len(length.per_position) + 1)
    axes.bar(numbers, length.per_position, width=0.55, color=BAND, label="of all steps")
    given = [(n, c) for n, c in zip(numbers, length.conditional, strict=True) if c is not None]
    axes.plot(
        [n for n, _ in given],
        [c for _, c in given],
        color=ACCENT,
        marker="o",
        markersize=4,
        label="given the position before",
    )
    axes.set_ylim(0, 1.02)
    _whole_numbers(axes, numbers)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.16), ncols=2, handletextpad=0.4)
    return _svg(figure)


def requests(length: Length) -> str | None:
    """Each request's own AL over its verify steps, with the pooled AL and the golden's limits."""
    rows = [(steps, 1 + accepted / steps) for accepted, steps in length.rows if steps]
    if not rows:
        return None
    figure, axes = _axes("verify steps of the request", "its acceptance length")
    mine = _own_band(length)
    if mine:
        axes.axhspan(mine.lower, mine.upper, color=BAND, linewidth=0, label="golden's limits")
    steps, own = zip(*rows, strict=True)
    axes.scatter(steps, own, s=14, color=ACCENT, alpha=0.75, linewidths=0)
    pooled = length.acceptance_length
    axes.axhline(pooled, color=INK, linewidth=1, label="pooled")  # type: ignore[arg-type]
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.16), ncols=2, handletextpad=0.4)
    return _svg(figure)


def path(length: Length) -> str | None:
    """An early decision: the shift from the golden at every look, two standard errors about it."""
    looks = [
        (look["prompts"], look["log_ratio"], look["standard_error"])
        for look in length.looks
        if None not in (look["log_ratio"], look["standard_error"])
    ]
    if not looks:
        return None
    figure, axes = _axes("prompts answered", "shift from the golden, %")
    mine = _own_band(length)
    if mine:
        low, high = (100 * (end / mine.reference - 1) for end in (mine.lower, mine.upper))
        axes.axhspan(low, high, color=BAND, linewidth=0, label="golden's limits")
    for prompts, middle, error in looks:
        low, high = (100 * math.expm1(middle + side * 2 * error) for side in (-1, 1))
        axes.vlines(prompts, low, high, color=ACCENT, linewidth=1.2)
    numbers, middles = [prompts for prompts, _, _ in looks], [math.expm1(m) for _, m, _ in looks]
    axes.plot(numbers, [100 * m for m in middles], color=ACCENT, marker="o", markersize=4)
    if mine:
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.16), handletextpad=0.4)
    return _svg(figure)


def _own_band(length: Length) -> Band | None:
    return next((band for band in length.bands if band.n == length.n), None)


def _band(axes: Axes, band: Band, label: str) -> None:
    height = band.upper - band.lower
    axes.bar(band.n, height, bottom=band.lower, width=0.5, color=BAND, label=label or None)
    axes.hlines(band.reference, band.n - 0.25, band.n + 0.25, color=MUTED, linewidth=1)


def _beside(numbers: Sequence[int]) -> list[float]:
    """Points of one N side by side, within the width of its box."""
    seen: Counter[int] = Counter()
    of_one = Counter(numbers)
    places = []
    for n in numbers:
        places.append(n + 0.4 * ((seen[n] + 0.5) / of_one[n] - 0.5))
        seen[n] += 1
    return places


def _point(axes: Axes, length: Length, x: float, first: bool) -> None:
    marker, colour, word = MARKS[length.outcome]
    value = length.acceptance_length
    assert value is not None
    if length.lower is not None and length.upper is not None:
        axes.vlines(x, length.lower, length.upper, color=colour, linewidth=1.2)
    axes.plot(x, value, marker, color=colour, markersize=5, label=word if first else None)


def _whole_numbers(axes: Axes, numbers: Sequence[int]) -> None:
    axes.set_xticks(range(min(numbers), max(numbers) + 1))
    axes.set_xlim(min(numbers) - 0.6, max(numbers) + 0.6)


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    matplotlib.rcdefaults()  # whatever this machine's matplotlibrc says
    matplotlib.rcParams.update(STYLE)
    figure = Figure(figsize=(4.8, 2.9), layout="constrained")
    axes = figure.add_subplot()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _svg(figure: Figure) -> str:
    """The svg element alone: the page's colours and font, and no names but those that it uses."""
    output = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(output, format="svg", transparent=True, metadata=nothing)
    text = output.getvalue()
    text = " ".join(text[text.index("<svg") :].split())
    text = re.sub(
        r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>| font-family: [^;]*;", "", text
    )
    text = re.sub(
        r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', text
    )
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    used = set(re.findall(r'(?:url\(|href=")#(\w+)', text))
    own = hashlib.sha256(text.encode()).hexdigest()[:8]  # a page has many plots, and one namespace
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{own}{m[1]}"' if m[1] in used else "", text)
    return re.sub(r'(url\(|href=")#', rf"\1#{own}", text).replace("> <", "><")
