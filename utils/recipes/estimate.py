"""How long a cell takes: as long as the same one did before, else by a stated assumption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from utils import records
from utils.errors import NotMeasured, UsageError
from utils.evals.evidence import PLAN
from utils.recipes import resume
from utils.recipes.sweep_cells import SWEEPS_FILE, Cell
from utils.records import Json

# What makes two runs take equally long.
SAME = ("recipe", "topology", "cells")


@dataclass(frozen=True)
class Past:
    """A run that measured all that it was asked for."""

    plan: Json
    minutes: float


def read(folder: Path) -> list[Past]:
    """The complete runs below a folder, the newest first.

    Raises:
        UsageError: there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(f"--past {folder}: no such directory")
    found = []
    for path in sorted(folder.rglob(PLAN)):
        try:
            found.append(_past(path.parent))
        except NotMeasured as error:
            print(f"past: {path.parent} is left out: {error}", flush=True)
    return sorted(found, key=lambda past: str(past.plan["started"]), reverse=True)


def _past(folder: Path) -> Past:
    if lack := resume.unmeasured(folder):
        raise NotMeasured(lack)
    plan: Json = records.read_json(folder / PLAN, "plan")
    command = records.read_json(folder / "server_command.json", "server_command")
    ends = [time for path in folder.glob("*.json") if (time := _finished(path)) is not None]
    if not ends:
        raise NotMeasured("no file says when it ended")
    seconds = max(ends) - records.parse_time(command["started"])
    if not seconds > 0:
        raise NotMeasured(f"it ended {-seconds:.0f} s before its server started")
    return Past(plan, seconds / 60)


def _finished(path: Path) -> float | None:
    data = records.read_json(path)
    said = data.get("run", data) if isinstance(data, dict) else {}
    finished = said.get("finished") if isinstance(said, dict) else None
    return records.parse_time(finished) if isinstance(finished, str) else None


def estimate(cell: Cell, past: list[Past], known: Json) -> Json:
    """Minutes from start to last result, and the GPUs held for them."""
    same = [one for one in past if all(one.plan[key] == cell.plan[key] for key in SAME)]
    if same:
        minutes, source = same[0].minutes, f"past run {same[0].plan['run_id']}"
    else:
        minutes, source = _assumed(cell, known), f"assumed in benchmarks/{SWEEPS_FILE.name}"
    return {
        "minutes": round(minutes, 1),
        "gpus": cell.gpus,
        "gpu_minutes": round(minutes * cell.gpus, 1),
        "source": source,
    }


def _assumed(cell: Cell, known: Json) -> float:
    kind = "gpu" if cell.gpus else "cpu"
    minutes: Mapping[str, float] = known["assumed_minutes"][kind]
    steps = Counter(part["kind"] for part in cell.plan["cells"])
    return (
        minutes["start"]
        + minutes["serving"] * steps["throughput"]
        + minutes["score"] * steps["score"]
        + minutes["al"] * steps["al"]
    )
