"""A workflow file as the local twin runs it: what it can't run is refused, never skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils import models, records
from utils.errors import UsageError
from utils.records import Json

FOLDER = Path(__file__).resolve().parents[2] / ".github" / "workflows"

KNOWN = {
    "workflow": {"name", "run-name", "on", "permissions", "defaults", "env", "jobs", "concurrency"},
    "job": {
        *("name", "needs", "if", "runs-on", "permissions", "timeout-minutes", "strategy", "steps"),
        *("outputs", "env", "uses", "with", "secrets", "concurrency"),
    },
    "step": {"name", "id", "if", "env", "run", "uses", "with", "timeout-minutes"},
    "strategy": {"matrix", "fail-fast", "max-parallel"},
    "matrix": {"include"},
    "defaults": {"run"},
    "defaults.run": {"shell"},
}
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")  # what GitHub makes of `shell: bash`


@dataclass(frozen=True)
class Workflow:
    """One file: `inputs` as its trigger declares them, jobs in file order."""

    name: str
    inputs: Json
    env: Json
    jobs: dict[str, Json]


def load(name: str, trigger: str) -> Workflow:
    """Read a workflow that is started by `workflow_dispatch` or `workflow_call`.

    Raises:
        UsageError: no such file or trigger, or a key that the twin doesn't know.
    """
    path = FOLDER / f"{Path(name).stem}.yml"
    if not path.is_file():
        known = [one.stem for one in FOLDER.glob("*.yml")]
        raise UsageError(f"there is no workflow {name}; {models.near(Path(name).stem, known)}")
    data = records.parse_yaml(path)
    _check(path, "workflow", data)
    _check(path, "defaults", data.get("defaults", {}))
    _check(path, "defaults.run", data.get("defaults", {}).get("run", {}))
    if trigger not in data["on"]:
        raise UsageError(
            f"{path.name} has no {trigger} trigger; it runs on {', '.join(data['on'])}"
        )
    for job, content in data["jobs"].items():
        _check_job(path, job, content)
    started = data["on"][trigger] or {}
    return Workflow(path.stem, started.get("inputs", {}), data.get("env", {}), data["jobs"])


def _check_job(path: Path, job: str, content: Json) -> None:
    _check(path, "job", content, f"job {job}: ")
    _check(path, "strategy", content.get("strategy", {}), f"job {job}: ")
    matrix = content.get("strategy", {}).get("matrix", {})
    _check(path, "matrix", matrix, f"job {job}: ")
    for step in content.get("steps", ()):
        _check(path, "step", step, f"job {job}: ")
        if "${{" in step.get("run", ""):
            raise UsageError(f"{path.name}: job {job}: an expression in `run`; pass it through env")


def _check(path: Path, what: str, mapping: Mapping[str, Any], where: str = "") -> None:
    if unknown := set(mapping) - KNOWN[what]:
        raise UsageError(f"{path.name}: {where}the twin can't do {', '.join(sorted(unknown))}")


def resolve(workflow: Workflow, given: Mapping[str, Any]) -> Json:
    """The inputs of a start: given, else the default, checked as GitHub does.

    Raises:
        UsageError: unknown, missing, or not of its type.
    """
    for name in given:
        if name not in workflow.inputs:
            near = models.near(name, workflow.inputs)
            raise UsageError(f"{workflow.name} has no input {name!r}; {near}")
    found: Json = {}
    for name, declared in workflow.inputs.items():
        value = given.get(name, declared.get("default"))
        if value is None:
            if declared.get("required"):
                raise UsageError(f"{workflow.name} needs the input {name}: -f {name}=…")
            value = False if declared.get("type") == "boolean" else ""
        found[name] = _typed(workflow.name, name, declared, value)
    return found


def _typed(workflow: str, name: str, declared: Json, value: Any) -> Any:
    kind = declared.get("type", "string")
    if kind == "boolean" and not isinstance(value, bool):
        if value not in ("true", "false"):
            raise UsageError(f"{workflow}: {name} is {value!r}, want true or false")
        return value == "true"
    if kind == "choice" and value not in declared["options"]:
        near = ", ".join(declared["options"])
        raise UsageError(f"{workflow}: {name} is {value!r}, want one of {near}")
    if kind == "number":
        if isinstance(value, str) and not value.isdecimal():
            raise UsageError(f"{workflow}: {name} is {value!r}, want a number")
        return int(value)
    if kind == "string" and not isinstance(value, str):
        raise UsageError(f"{workflow}: {name} is {value!r}, want a text")
    return value


def ancestors(jobs: Mapping[str, Json], job: str) -> set[str]:
    """All jobs that one needs, directly or not."""
    found: set[str] = set()
    for name in needs(jobs[job]):
        if name not in jobs:
            raise UsageError(f"job {job} needs {name!r}, which isn't there")
        found |= {name} | ancestors(jobs, name)
    return found


def needs(job: Json) -> list[str]:
    said = job.get("needs", [])
    return [said] if isinstance(said, str) else list(said)


def ordered(jobs: Mapping[str, Json]) -> list[str]:
    """Jobs so that each comes after those that it needs, else in file order."""
    return sorted(jobs, key=lambda job: (len(ancestors(jobs, job)), list(jobs).index(job)))
