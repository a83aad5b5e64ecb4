"""A dispatch, rehearsed on this machine: the workflows' own steps, in GitHub's order."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utils.ci import actions, workflow
from utils.ci.actions import Place, StepFailed
from utils.ci.expressions import Scope, condition, fill, spell
from utils.ci.shell import Shell
from utils.errors import UsageError
from utils.progress import Progress
from utils.recipes import commit
from utils.recipes.settings import ROOT
from utils.records import Json

SUCCESS, FAILURE, CANCELLED, SKIPPED = "success", "failure", "cancelled", "skipped"
SUMMARY_LIMIT = 1024 * 1024  # bytes of one step; GitHub drops what is larger
JOB_MINUTES = 360  # GitHub's default


class Secrets(Mapping[str, str]):
    """A secret is the variable of that name in the caller's environment, else empty."""

    def __getitem__(self, name: str) -> str:
        return os.environ.get(name, "")

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass
class Job:
    """One job while it runs."""

    name: str
    contexts: dict[str, Any]
    temp: Path
    environment: dict[str, str]
    deadline: float
    after_cancel: bool  # it started when the run was cancelled: one that cleans up, not ended by it
    failed: bool = False
    steps: dict[str, Json] = field(default_factory=dict)


class Twin:
    """One local run; `folder` holds its artifacts, its temporary folders and summary.md."""

    def __init__(self, folder: Path, shell: Shell) -> None:
        self.folder, self.shell = folder, shell
        self.place = Place(ROOT, folder / "artifacts")
        self.place.artifacts.mkdir(parents=True)
        self.count = 0
        self.github = {
            "sha": commit.commit(ROOT),
            "ref": "local",
            "run_id": str(folder),
            "run_attempt": "1",
            "workflow": "",
        }

    def run(
        self,
        name: str,
        trigger: str,
        given: Mapping[str, Any],
        secrets: Mapping[str, str],
        label: str = "",
    ) -> str:
        """Run a workflow; the result as GitHub names it.

        Raises:
            UsageError: something in it can't be done here.
        """
        found = workflow.load(name, trigger)
        inputs = workflow.resolve(found, given)
        results: dict[str, Json] = {}
        for job in workflow.ordered(found.jobs):
            content = found.jobs[job]
            above = [results[name]["result"] for name in workflow.ancestors(found.jobs, job)]
            contexts = {
                "inputs": inputs,
                "github": {**self.github, "workflow": found.name},
                "needs": {name: results[name] for name in workflow.needs(content)},
                "secrets": secrets,
            }
            scope = self._scope(contexts, FAILURE in above, set(above) <= {SUCCESS})
            if not condition(str(content.get("if", "success()")), scope):
                print(f"--- {label}{job}: skipped", flush=True)
                results[job] = {"result": SKIPPED, "outputs": _empty(content)}
                continue
            results[job] = self._instances(f"{label}{job}", content, found.env, scope)
        return _worst(result["result"] for result in results.values())

    def _scope(self, contexts: Mapping[str, Any], failed: bool, ran: bool = True) -> Scope:
        return Scope(contexts, failed, self.shell.cancelled, ran)

    def _step_scope(self, job: Job) -> Scope:
        cancelled = self.shell.cancelled and not job.after_cancel
        return Scope(job.contexts, job.failed, cancelled, ran=True)

    def _instances(self, label: str, content: Json, env: Json, scope: Scope) -> Json:
        """A job, once for each row of its matrix; the machine is one, so one after the other."""
        if "strategy" not in content:
            return self._job(label, content, env, dict(scope.contexts))
        strategy = fill(content["strategy"], scope)
        rows, results = strategy["matrix"]["include"], []
        if not rows:
            raise UsageError(f"{label}: its matrix is empty; GitHub refuses that")
        with Progress(label, len(rows), every_s=0) as shown:
            for row in rows:
                stop = FAILURE in results and strategy.get("fail-fast", True)
                if stop or self.shell.cancelled:
                    results.append(CANCELLED)
                    continue
                contexts = {**scope.contexts, "matrix": row}
                name = f"{label} ({row.get('cell', len(results))})"
                results.append(self._job(name, content, env, contexts)["result"])
                shown.step()
        return {"result": _worst(results), "outputs": {}}

    def _job(self, label: str, content: Json, env: Json, contexts: dict[str, Any]) -> Json:
        if "uses" in content:
            called = Path(content["uses"]).name
            given, secrets = (
                fill(content.get(key, {}), self._scope(contexts, False))
                for key in ("with", "secrets")
            )
            result = self.run(called, "workflow_call", given, secrets, f"{label} / ")
            return {"result": result, "outputs": {}}
        self.count += 1
        temp = self.folder / f"job{self.count}"
        temp.mkdir()
        contexts |= {"runner": {"temp": str(temp)}, "steps": {}}
        scope = self._scope(contexts, False)
        minutes = fill(content.get("timeout-minutes", JOB_MINUTES), scope)
        variables = fill({**env, **content.get("env", {})}, scope)
        deadline = time.monotonic() + 60 * int(minutes)
        job = Job(label, contexts, temp, variables, deadline, self.shell.cancelled)
        for number, step in enumerate(content["steps"], start=1):
            self._step(job, number, step)
        result = self._result(job)
        if result != SUCCESS:
            return {"result": result, "outputs": _empty(content)}
        outputs = fill(content.get("outputs", {}), self._scope(contexts, False))
        return {"result": result, "outputs": outputs}

    def _result(self, job: Job) -> str:
        if self.shell.cancelled and not job.after_cancel:
            return CANCELLED
        return FAILURE if job.failed else SUCCESS

    def _step(self, job: Job, number: int, step: Json) -> None:
        name = f"{job.name}: {step.get('name', step.get('uses', step.get('run')))}"
        scope = self._step_scope(job)
        outputs: Json = {}
        if not condition(str(step.get("if", "success()")), scope):
            outcome = SKIPPED
        else:
            print(f"--- {name}", flush=True)
            if "uses" in step:
                outcome = self._action(job, step)
            else:
                outcome, outputs = self._script(job, number, step, scope)
            print(f"--- {name}: {outcome}", flush=True)
        job.failed = job.failed or outcome == FAILURE
        if "id" in step:
            job.contexts["steps"][step["id"]] = {"outcome": outcome, "outputs": outputs}

    def _action(self, job: Job, step: Json) -> str:
        # The token is for GitHub; no script gets one here, so that nothing is published.
        github = {**job.contexts["github"], "token": ""}
        scope = self._scope({**job.contexts, "github": github}, job.failed)
        try:
            actions.run(step["uses"], fill(step.get("with", {}), scope), self.place)
        except StepFailed as error:
            print(f"error: {error}", flush=True)
            return FAILURE
        return SUCCESS

    def _script(self, job: Job, number: int, step: Json, scope: Scope) -> tuple[str, Json]:
        script, output, summary = (
            job.temp / f".step{number}.{suffix}" for suffix in ("sh", "out", "md")
        )
        script.write_text(step["run"], encoding="utf-8")
        output.touch()
        summary.touch()
        own = fill(step.get("env", {}), scope)
        environment = {
            **os.environ,
            **{key: spell(value) for key, value in {**job.environment, **own}.items()},
            **{"CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_SHA": self.github["sha"]},
            **{"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)},
            **{"GITHUB_WORKSPACE": str(ROOT), "RUNNER_TEMP": str(job.temp)},
        }
        deadline = min(job.deadline, time.monotonic() + 60 * int(step.get("timeout-minutes", 9999)))
        status, ended = self.shell.run(script, environment, ROOT, deadline)
        if status:
            print(f"error: {job.name}: exit status {status}", flush=True)
        if self._add_summary(summary) and status == 0 and not ended:
            return SUCCESS, _outputs(output)
        return (CANCELLED if ended and self.shell.cancelled else FAILURE), {}

    def _add_summary(self, summary: Path) -> bool:
        text = summary.read_bytes()
        if len(text) > SUMMARY_LIMIT:
            print(f"error: a step summary of {len(text)} bytes, GitHub takes {SUMMARY_LIMIT}")
            return False
        with (self.folder / "summary.md").open("ab") as whole:
            whole.write(text)
        return True


def _outputs(path: Path) -> Json:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


def _empty(job: Json) -> Json:
    """The outputs of a job that didn't get there."""
    return dict.fromkeys(job.get("outputs", {}), "")


def _worst(results: Any) -> str:
    found = set(results)
    for result in (FAILURE, CANCELLED, SUCCESS):
        if result in found:
            return result
    return SKIPPED
