"""A sweep: which runs, at what cost, and the files that start each of them.

Writes OUT/sweep.json, OUT/matrix.json and, per run, OUT/cells/<id>/plan.json and run.env.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from utils import errors, records
from utils.errors import UsageError
from utils.recipes import commit, estimate, matrix, resume, run_plan, settings, sweep_cells
from utils.recipes.selection import Filter, select
from utils.recipes.settings import ROOT
from utils.recipes.sweep_cells import Asked, Cell
from utils.records import Json

SWEEP, CELLS, KEPT = "sweep.json", "cells", "kept"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("out", type=Path, help="a new or empty folder")
    add("--recipes", type=str.split, default=[], metavar="'PATTERN…'", help="names; default: all")
    add("--hw", type=str.split, default=[], metavar="'HW…'", help="hardware; default: all")
    add("--mtp", choices=("on", "off", "both"), default="both", help="recipes that speculate")
    add("--scenarios", type=scenarios, default="8192/1024", metavar="'ISL/OSL…'")
    add(
        "--concurrencies",
        type=groups,
        required=True,
        metavar='"1 8, 64"',
        help="requests in flight; those before a comma share an engine, one after the other",
    )
    add("--evals", choices=("none", "with", "only"), default="with", help="beside serving, or only")
    add("--thinking", choices=("on", "off", "golden"), default="golden", help="golden: the model's")
    add("--image", default="", help="container image (default: by sweeps.yaml)")
    add("--no-canary", action="store_true", help="don't run the cheapest cell before the others")
    add("--past", type=Path, metavar="DIR", help="results of past runs, for the estimates")
    add("--resume", type=Path, metavar="DIR", help="results of this sweep: only the rest is run")


def scenarios(text: str) -> list[tuple[int, int]]:
    """ISL/OSL pairs, tokens."""
    try:
        found = [tuple(map(settings.positive, word.split("/"))) for word in text.split()]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}, as ISL/OSL") from error
    if not found or len(set(found)) < len(found) or {len(pair) for pair in found} != {2}:
        raise argparse.ArgumentTypeError(f'{text!r}: want distinct ISL/OSL, e.g. "1024/1024"')
    return [(isl, osl) for isl, osl in found]


def groups(text: str) -> list[tuple[int, ...]]:
    """Groups of concurrencies."""
    try:
        settings.concurrencies(text.replace(",", " "))  # distinct over all groups
        return [settings.concurrencies(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def write(args: argparse.Namespace, folder: Path) -> int:
    """Plan a sweep over a folder of recipes and write it.

    Raises:
        UsageError: nothing is selected, OUT is in use, or an input doesn't fit.
    """
    out: Path = args.out
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; name a new folder")
    known = sweep_cells.facts()
    asked = Asked(args.scenarios, args.concurrencies, args.evals, args.thinking, args.image)
    recipes = select(folder, Filter(args.recipes, args.hw, args.mtp))
    cells = [cell for recipe in recipes for cell in sweep_cells.cells(recipe, asked, known)]
    past = estimate.read(args.past) if args.past else []
    earlier = resume.read(args.resume) if args.resume else None
    rows = []
    for cell in cells:
        row = _row(cell) | {"estimate": estimate.estimate(cell, past, known)}
        rows.append(row | _write_cell(cell, out, earlier))
    sweep = {
        "schema": "sweep_plan/1",
        "commit": commit.commit(ROOT),
        "made": records.utc_now(),
        "asked": _asked(args),
        "cells": rows,
    }
    records.write_json(out / "matrix.json", matrix.matrix(rows, not args.no_canary), "matrix")
    records.write_json(out / SWEEP, sweep, "sweep_plan")
    print("\n".join(_table(rows)))
    return errors.PASS


def _asked(args: argparse.Namespace) -> Json:
    plain = ("recipes", "hw", "mtp", "evals", "thinking", "image")
    said = {name: getattr(args, name) for name in plain}
    shapes = [f"{isl}/{osl}" for isl, osl in args.scenarios]
    return {**said, "scenarios": shapes, "concurrencies": list(map(list, args.concurrencies))}


def _row(cell: Cell) -> Json:
    return {
        "id": cell.id,
        "recipe": cell.settings.recipe_label,
        "launcher": f"runners/{cell.hardware['launcher']}",
        "runner": cell.hardware["runner"],
        "embedded_engine": cell.hardware["embedded_engine"],
        "multinode": cell.settings.name.disaggregated,
    }


def _write_cell(cell: Cell, out: Path, earlier: list[resume.Earlier] | None) -> Json:
    """Write what starts a run, or copy what an earlier one measured."""
    plan, reason = run_plan.stamp(cell.plan), ""
    if earlier is not None:
        run, reason = resume.find(earlier, plan)
        if run:
            shutil.copytree(run.folder, out / KEPT / cell.id)
            return {"state": "kept", "reason": reason}
    records.write_json(out / CELLS / cell.id / "plan.json", plan, "plan")
    lines = (f"{name}={value}\n" for name, value in sorted(cell.environment.items()))
    records.write_text(out / CELLS / cell.id / "run.env", "".join(lines))
    return {"state": "run", "reason": reason}


def _table(rows: Sequence[Json]) -> list[str]:
    lines = []
    for row in rows:
        cost = row["estimate"]
        why = f" — {row['reason']}" if row["reason"] else ""
        time = f"{cost['minutes']:g} min, {cost['gpu_minutes']:g} GPU-minutes ({cost['source']})"
        lines.append(f"{row['state']:<4} {row['id']}: {time}{why}")
    due = [row["estimate"]["gpu_minutes"] for row in rows if row["state"] == "run"]
    return [*lines, f"{len(rows)} cells, {len(due)} to run, about {sum(due):g} GPU-minutes"]
