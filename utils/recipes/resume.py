"""What of an earlier sweep still counts: judged by the gate, never by a file's being there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from utils import records
from utils.errors import NotMeasured, UsageError
from utils.evals import validate_scores
from utils.evals.evidence import PLAN
from utils.recipes import run_plan
from utils.records import Json
from utils.verdicts import Outcome

MEASURED = (Outcome.PASS, Outcome.FAIL)


@dataclass(frozen=True)
class Earlier:
    """One earlier run, readable as a plan; `lacks` is why it has to run again, empty if not."""

    folder: Path
    plan: Json
    lacks: str


def read(root: Path) -> list[Earlier]:
    """The runs below a folder, the newest first.

    Raises:
        UsageError: there is no such folder, or no plan.json in it.
    """
    if not root.is_dir():
        raise UsageError(f"--resume {root}: no such directory")
    plans = sorted(root.rglob(PLAN))
    if not plans:
        raise UsageError(f"--resume {root}: no {PLAN} below it: these are no results of a sweep")
    found = [run for path in plans if (run := _read(path)) is not None]
    return sorted(found, key=lambda run: str(run.plan["started"]), reverse=True)


def _read(path: Path) -> Earlier | None:
    try:
        plan: Json = records.read_json(path, "plan")
    except NotMeasured as error:
        print(f"resume: {error}; its run starts anew", flush=True)
        return None
    return Earlier(path.parent, plan, _lacks(path.parent, plan))


def _lacks(folder: Path, plan: Json) -> str:
    if plan["dirty"] is not False:
        return "it may have run with changes that no commit has"
    return unmeasured(folder)


def unmeasured(folder: Path) -> str:
    """The first verdict of the gate that says so, empty when every cell passed or failed."""
    verdicts = validate_scores.validate(folder)
    lacking = [verdict for verdict in verdicts if verdict.outcome not in MEASURED]
    return lacking[0].line() if lacking else ""


def find(earlier: list[Earlier], wanted: Json) -> tuple[Earlier | None, str]:
    """The run that needs no other, else None; and why, in words."""
    same = [
        run
        for run in earlier
        if all(run.plan[key] == wanted[key] for key in (*run_plan.MUST_AGREE, "commit"))
    ]
    for run in same:
        if not run.lacks:
            return run, f"measured by run {run.plan['run_id']}"
    return None, same[0].lacks if same else "no earlier run at this commit asked for it"
