"""Golden curves for people: a table in the terminal, one figure as PNG or in an HTML page."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from utils import records
from utils.golden.lint import curves
from utils.golden.registry import Golden

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
WIDTH = 110
STYLE = {"svg.hashsalt": "specgate", "text.parse_math": False}
DASHES = {"on": "-", "off": "--"}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Golden acceptance lengths</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{{font:15px sans-serif;margin:2em auto;max-width:75em;padding:0 1em}}
svg{{max-width:100%;height:auto}}table{{border-collapse:collapse}}
td,th{{border:1px solid #bbb;padding:.2em .6em;text-align:right}}td:first-child{{text-align:left}}
</style></head><body><h1>Golden acceptance lengths</h1>
<p>AL = 1 + accepted / verify steps, over the draft length N. Solid: thinking on; dashed: off.
Bars: lowest and highest run, where there are several.</p>
{figure}
<table><tr>{head}</tr>
{rows}
</table></body></html>
"""


def cells(goldens: Sequence[Golden]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table, one row a curve."""
    lengths = sorted({golden.n for golden in goldens})
    rows = []
    for curve in curves(goldens):
        values = {golden.n: f"{golden.acceptance_length:.2f}" for golden in curve}
        first = curve[0]
        runs = "imported" if first.imported else str(min(len(g.run_lengths) for g in curve))
        shown = [values.get(n, "") for n in lengths]
        rows.append([first.file.removesuffix(".yaml"), first.thinking, runs, *shown])
    return ["golden", "thinking", "runs", *(f"N={n}" for n in lengths)], rows


def terminal(goldens: Sequence[Golden]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    head, rows = cells(goldens)
    table = Table(Column(head[0], no_wrap=True), *head[1:], box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*row)
    # Better lines that wrap in a narrow terminal than columns that are cut off.
    Console(width=max(Console().width, WIDTH)).print(table)


def png(goldens: Sequence[Golden], path: Path) -> None:
    """Write the figure as a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _figure(goldens).savefig(path, format="png", dpi=120, metadata={"Software": None})


def page(goldens: Sequence[Golden], path: Path) -> None:
    """Write the same figure and the table as one HTML file that needs no other."""
    head, rows = cells(goldens)
    records.write_text(
        path,
        PAGE.format(
            figure=_svg(_figure(goldens)),
            head=_cells("th", head),
            rows="\n".join(f"<tr>{_cells('td', row)}</tr>" for row in rows),
        ),
    )


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


def _figure(goldens: Sequence[Golden]) -> Figure:
    """One plot a model, one line a curve; without a display."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    models = [
        (prefix, list(group))
        for prefix, group in groupby(sorted(goldens, key=lambda g: g.prefix), lambda g: g.prefix)
    ]
    rows = -(-len(models) // COLUMNS)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.2 * COLUMNS, 3.4 * rows), layout="constrained")
        plots = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
        for axes, (prefix, mine) in zip(plots, models, strict=False):
            for curve in curves(mine):
                _line(axes, curve)
            axes.set(title=prefix, xlabel="N", ylabel="AL")
            axes.set_xticks(sorted({golden.n for golden in mine}))
            axes.grid(alpha=0.4)
            axes.legend(fontsize=7)
        for axes in plots[len(models) :]:
            axes.set_axis_off()
    return figure


def _line(axes: Axes, curve: Sequence[Golden]) -> None:
    ns, lengths = [g.n for g in curve], [g.acceptance_length for g in curve]
    first = curve[0]
    name = first.file.removeprefix(f"{first.prefix}_").removesuffix(".yaml")
    below = [g.acceptance_length - min(g.run_lengths or [g.acceptance_length]) for g in curve]
    above = [max(g.run_lengths or [g.acceptance_length]) - g.acceptance_length for g in curve]
    axes.errorbar(
        ns,
        lengths,
        yerr=[below, above],
        fmt=f"o{DASHES[first.thinking]}",
        markersize=3,
        capsize=2,
        label=f"{name} {first.thinking}",
    )


def _svg(figure: Figure) -> str:
    """The figure as an <svg> element, the same for the same goldens."""
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", text.getvalue(), flags=re.DOTALL)
