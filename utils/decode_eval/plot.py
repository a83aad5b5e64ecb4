"""A run's acceptance length over its steps, with intervals, and the acceptance at each position."""

from __future__ import annotations

import argparse
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utils import errors, records
from utils.decode_eval import history
from utils.errors import UsageError
from utils.records import Json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = ("tau.png", "tau.html")
PANEL_INCHES = (5.2, 3.6)
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "specgate",
    "text.parse_math": False,  # a name may hold a dollar
    "font.size": 9.0,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the history of a run as PNG, SVG or a page of HTML."""
    parser = argparse.ArgumentParser(
        prog="python3 -m utils.decode_eval plot", description=main.__doc__
    )
    parser.add_argument("run", type=Path, help="output_dir of a run, or its history.jsonl")
    parser.add_argument(
        "--output", type=Path, action="append", help=f".png, .svg or .html (default: {NAMES})"
    )
    args = parser.parse_args(argv)
    folder = args.run if args.run.is_dir() else args.run.parent
    outputs = args.output or [folder / name for name in NAMES]
    if wrong := [str(path) for path in outputs if path.suffix not in (".png", ".svg", ".html")]:
        raise UsageError(f"--output {', '.join(wrong)}: the suffix must be .png, .svg or .html")
    rows = history.read(args.run)
    if not history.measured(rows):
        raise UsageError(f"{args.run} has no measured point yet, nothing can be drawn")
    figure = draw(rows)
    for path in outputs:
        write(figure, rows, path)
        print(f"wrote {path}")
    return errors.PASS


def draw(rows: Sequence[Json]) -> Figure:
    """One panel with the AL of all sets over steps, then one a set with its positions."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    points = history.measured(rows)
    sets = [one["name"] for one in points[-1]["sets"]]
    with mpl.rc_context(STYLE):
        wide, high = PANEL_INCHES
        figure = Figure(figsize=(wide * (1 + len(sets)), high), layout="constrained")
        first, *others = figure.subplots(1, 1 + len(sets))
        _lengths(first, points, sets)
        _gaps(first, rows)
        first.legend(loc="best", fontsize=8)
        for axes, name in zip(others, sets, strict=True):
            _positions(axes, points, name)
    return figure


def write(figure: Figure, rows: Sequence[Json], path: Path) -> None:
    import matplotlib as mpl

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        if path.suffix != ".html":
            metadata = {"Software": None} if path.suffix == ".png" else {"Date": None}
            figure.savefig(path, dpi=110, metadata=metadata)
            return
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue()
    records.write_text(path, _page(svg[svg.index("<svg") :], rows))


def _lengths(axes: Axes, points: Sequence[Json], sets: Sequence[str]) -> None:
    """Pooled AL with its 95 % interval; of several sets each; what training simulated."""
    steps = [row["step"] for row in points]
    tau = [row["acceptance_length"] for row in points]
    axes.errorbar(
        steps,
        tau,
        yerr=[[_arm(row, "lower") for row in points], [_arm(row, "upper") for row in points]],
        marker="o",
        markersize=4,
        capsize=3,
        color="#1f5fa8",
        label="tau_real, 95 % interval" + (", all sets" if len(sets) > 1 else ""),
    )
    for name in sets if len(sets) > 1 else ():
        own = _of_set(points, name)
        axes.plot(
            [step for step, _ in own],
            [one["acceptance_length"] for _, one in own],
            linewidth=1,
            marker=".",
            label=name,
        )
    simulated = [(row["step"], row["tau_sim"]) for row in points if row["tau_sim"] is not None]
    if simulated:
        axes.plot(
            *zip(*simulated, strict=True), ls="--", marker=".", color="#777777", label="tau_sim"
        )
    axes.set_xlabel("optimizer step")
    axes.set_ylabel(f"acceptance length, N = {points[-1]['num_speculative_tokens']}")


def _arm(row: Json, end: str) -> float:
    """Length of an error bar; none where too few requests make no interval."""
    return 0.0 if row[end] is None else abs(row[end] - row["acceptance_length"])


def _gaps(axes: Axes, rows: Sequence[Json]) -> None:
    """Boundaries that have no figure, so that a gap is seen as one."""
    measured = {row["step"] for row in history.measured(rows)}
    gaps = sorted({row["step"] for row in rows} - measured)
    if gaps:
        axes.plot(
            gaps,
            [1.0] * len(gaps),
            linestyle="",
            marker="x",
            color="#b3261e",
            label="not measured",
        )


def _positions(axes: Axes, points: Sequence[Json], name: str) -> None:
    own = [(step, one["per_position"]) for step, one in _of_set(points, name)]
    most = max((len(rates) for _, rates in own), default=0)
    for position in range(most):
        known = [(step, rates[position]) for step, rates in own if len(rates) > position]
        axes.plot(*zip(*known, strict=True), marker="o", markersize=4, label=f"{position + 1}")
    axes.set_ylim(0, 1)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("share of steps accepted at draft position")
    axes.set_title(f"prompt set {name}", fontsize=9)
    if most:
        axes.legend(title="position", fontsize=8, ncols=most)
    else:
        axes.text(0.5, 0.5, "the engine gives no positions", transform=axes.transAxes, ha="center")


def _of_set(points: Sequence[Json], name: str) -> list[tuple[int, Json]]:
    return [(row["step"], one) for row in points for one in row["sets"] if one["name"] == name]


def _page(svg: str, rows: Sequence[Json]) -> str:
    """The drawing and its figures, in one file that needs no other."""
    cells = ("step", "outcome", "acceptance_length", "lower", "upper", "tau_sim", "reason")
    head = "".join(f"<th>{name}</th>" for name in cells)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{_text(row[name])}</td>" for name in cells) + "</tr>" for row in rows
    )
    style = (
        "body{font:14px sans-serif;margin:2em}svg{max-width:100%;height:auto}"
        "td,th{padding:.2em .8em;text-align:right}"
    )
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8><title>Acceptance length</title>\n"
        f"<style>{style}</style>\n<h1>Acceptance length while training</h1>\n{svg}\n"
        f"<table><tr>{head}</tr>\n{body}\n</table></html>\n"
    )


def _text(value: Any) -> str:
    if value is None:
        return "—"
    return f"{value:.4f}" if isinstance(value, float) else html.escape(str(value))
