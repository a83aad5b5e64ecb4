"""One cell of a sweep in its job: start it as planned, and judge what came back by the plan."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from utils import errors, models, records
from utils.errors import NotMeasured, UsageError
from utils.evals import validate_scores
from utils.evals.evidence import PLAN
from utils.recipes import commit, settings
from utils.recipes.plan import CELLS, SWEEP
from utils.recipes.settings import ROOT
from utils.records import Json

# Facts of the machine that the job runs on; every other variable of a recipe is the plan's to set.
OF_THE_MACHINE = {"MODEL_PATH", "PORT", "SPEEDBENCH_DIR", "SERVER_READY_TIMEOUT_S"}
LAUNCHERS_OWN = "model_path"  # a plan is written where nobody knows it
ASKED = {*settings.VARIABLES, "IMAGE"} - OF_THE_MACHINE


def find(plan: Path, cell: str) -> Json:
    """A cell's row in a sweep's plan.

    Raises:
        UsageError: the plan can't be used or has no such cell to run.
    """
    rows = {row["id"]: row for row in read(plan)["cells"] if row["state"] == "run"}
    if cell not in rows:
        raise UsageError(f"{plan / SWEEP} has no cell {cell!r} to run; {models.near(cell, rows)}")
    return dict(rows[cell])


def read(plan: Path, file: str = SWEEP, schema: str = "sweep_plan") -> Json:
    """A file of a sweep's plan.

    Raises:
        UsageError: it can't be read or breaks its schema.
    """
    try:
        data: Json = records.read_json(plan / file, schema)
    except NotMeasured as error:
        raise UsageError(str(error)) from error
    return data


def launch(plan: Path, cell: str, results: Path) -> NoReturn:
    """Become the launcher of a cell, so that a cancel reaches it.

    Raises:
        UsageError: the checkout is at another commit than the plan, or the results' folder is used.
    """
    row = find(plan, cell)
    here, wanted = commit.commit(ROOT), read(plan)["commit"]
    if here != wanted:
        raise UsageError(f"the plan is of commit {wanted}, this checkout is at {here}")
    if results.exists() and any(results.iterdir()):
        raise UsageError(f"{results} holds files of something else; name a new folder")
    results.mkdir(parents=True, exist_ok=True)
    planned = (plan / CELLS / cell / PLAN).absolute()
    shutil.copyfile(planned, results / PLAN)
    asked = {**read_environment(planned.with_name("run.env")), "PLAN_FILE": str(planned)}
    environment = clean(os.environ) | asked | {"RESULT_DIR": str(results.absolute())}
    print(f"launch: {row['launcher']} {row['recipe']} {asked}", flush=True)
    os.chdir(ROOT)
    os.execvpe("bash", ["bash", row["launcher"], row["recipe"]], environment)


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what a recipe would take for something that was asked for.

    The step summary goes too: the report's own step writes it, once.
    """
    left_out = ASKED | {"PLAN_FILE", "GITHUB_STEP_SUMMARY"}
    return {name: value for name, value in environment.items() if name not in left_out}


def read_environment(path: Path) -> dict[str, str]:
    """run.env: NAME=value lines.

    Raises:
        UsageError: it can't be read, or a line is none of these.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read ({error})") from error
    pairs = [line.partition("=") for line in lines]
    if odd := [name for name, equals, _ in pairs if not equals or name not in ASKED]:
        raise UsageError(f"{path}: {odd[0]!r} is no NAME=value of a recipe's variable")
    return {name: value for name, _, value in pairs}


def gate(plan: Path, cell: str, results: Path) -> int:
    """Judge results by the plan's own copy of what was asked, whatever the results say of it.

    Raises:
        UsageError: there are no results, or they are of another cell.
    """
    find(plan, cell)
    planned = records.read_json(plan / CELLS / cell / PLAN, "plan")
    try:
        came = records.read_json(results / PLAN, "plan")
    except NotMeasured as error:
        raise UsageError(f"{error}; the launch step puts it there first of all") from error
    differing = {key for key in planned if came.get(key) != planned[key]} - {LAUNCHERS_OWN}
    if differing:
        text = f"{results / PLAN} differs from the sweep's in {', '.join(sorted(differing))}"
        raise NotMeasured(f"{text}: results of another run", "other_run")
    points = {part["concurrency"] for part in planned["cells"] if part["kind"] == "score"}
    arguments = ["--results-dir", str(results)]
    if points:
        arguments += ["--expected-concs", " ".join(map(str, sorted(points)))]
    status = validate_scores.main(arguments)
    if status not in (errors.PASS, errors.FAIL, errors.NOT_MEASURED):
        raise NotMeasured(f"the gate ended with status {status}")
    return status
