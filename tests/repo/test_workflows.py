"""The workflows as files: GitHub's schema, security, shell, and what a person could get wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from utils import records
from utils.ci import actions, workflow
from utils.recipes import matrix

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NAMES = [path.stem for path in FILES]
BIN = Path(sys.executable).parent
EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
LONGEST_MINUTES = 600
# Jobs that may write, and the input that must ask for it.
MAY_WRITE = {
    ("speedbench-al", "propose"): "open-pr",
    ("run-sweep", "comment"): "pull-request",
    ("e2e-tests", "sweep"): "pull-request",  # calls the one above
}


def parsed(name: str) -> Any:
    return records.parse_yaml(ROOT / ".github" / "workflows" / f"{name}.yml")


def jobs() -> Iterator[tuple[str, str, Any]]:
    for name in NAMES:
        for job, content in parsed(name)["jobs"].items():
            yield name, job, content


def steps() -> Iterator[tuple[str, str, Any]]:
    for name, job, content in jobs():
        for step in content.get("steps", ()):
            yield name, job, step


def expressions(part: Any) -> Iterator[str]:
    """Every expression in a part of a workflow, conditions included."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "if" and "${{" not in str(value):
                yield str(value)
            yield from expressions(value)
    elif isinstance(part, list):
        for value in part:
            yield from expressions(value)
    elif isinstance(part, str):
        yield from EXPRESSION.findall(part)


def names_in(part: Any, context: str) -> set[str]:
    pattern = rf"\b{context}\.([\w-]+(?:\.[\w-]+)*)"
    return {name for text in expressions(part) for name in re.findall(pattern, text)}


def run(*command: str | Path, **options: Any) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    return done.returncode, done.stdout + done.stderr


def test_all_workflows_are_there() -> None:
    assert [
        *("benchmark-multinode-tmpl", "benchmark-tmpl", "decode-eval", "e2e-tests"),
        *("run-sweep", "speedbench-al", "tests"),
    ] == NAMES


@pytest.mark.parametrize(
    "schema", ["vendor.github-workflows", "custom.github-workflows-require-timeout"]
)
def test_schema(schema: str) -> None:
    status, said = run(BIN / "check-jsonschema", "--builtin-schema", schema, *FILES)
    assert status == 0, said


def test_zizmor_finds_nothing() -> None:
    status, said = run(BIN / "zizmor", "--offline", "--no-progress", *FILES)
    assert (status, "No findings to report" in said) == (0, True), said


def test_zizmor_would_find_something(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yml"
    bad.write_text(
        (ROOT / ".github/workflows/tests.yml")
        .read_text()
        .replace("@de0fac2e4500dabe0009e67214ff5f5447ce83dd", "@v6")
    )
    status, said = run(BIN / "zizmor", "--offline", "--no-progress", bad)
    assert status != 0
    assert "unpinned-uses" in said


def test_shellcheck_of_every_run_block(tmp_path: Path) -> None:
    blocks = [(name, step) for name, _, step in steps() if "run" in step]
    assert blocks
    for number, (name, step) in enumerate(blocks):
        script = tmp_path / f"{name}-{number}.sh"
        script.write_text(f"#!/usr/bin/env bash\nset -euo pipefail\n{step['run']}\n")
    status, said = run(BIN / "shellcheck", "-x", *sorted(tmp_path.glob("*.sh")))
    assert status == 0, said


def test_a_run_block_is_one_command_without_expressions() -> None:
    for name, job, step in steps():
        text = step.get("run", "").replace("\\\n", " ").strip()
        assert "${{" not in text, f"{name}: {job}: pass it through env"
        assert "\n" not in text, f"{name}: {job}: put the logic into a script that tests run"
        assert not re.search(r"[;|]|&&", text), f"{name}: {job}: {text}"


def test_launchers_take_the_step_s_place() -> None:
    """A runner signals the topmost process alone."""
    held = [
        step["run"]
        for _, _, step in steps()
        if re.search(r"utils.ci (launch|golden-collect)", step.get("run", ""))
    ]
    assert len(held) == 3
    assert all(text.startswith("exec ") for text in held)


def test_every_shell_is_strict() -> None:
    for name in NAMES:
        if any("run" in step for other, _, step in steps() if other == name):
            assert parsed(name)["defaults"] == {"run": {"shell": "bash"}}


def test_permissions_are_the_least() -> None:
    for name in NAMES:
        assert parsed(name)["permissions"] == {"contents": "read"}
    for name, job, content in jobs():
        asked = content.get("permissions", {})
        writes = {scope for scope, level in asked.items() if level != "read"}
        assert bool(writes) == ((name, job) in MAY_WRITE), f"{name}: {job}"


def test_nothing_is_published_by_default() -> None:
    for (name, job), asked in MAY_WRITE.items():
        content = parsed(name)
        for trigger in content["on"].values():
            assert trigger["inputs"][asked]["default"] in (False, ""), f"{name}: {job}"
        if "steps" in content["jobs"][job]:
            assert f"inputs.{asked}" in content["jobs"][job]["if"], f"{name}: {job}"
    for name, job, step in steps():
        if (name, job) not in MAY_WRITE:
            told = {*step.get("env", {}).values(), step.get("run", "")}
            assert not [text for text in map(str, told) if "github.token" in text], f"{name}: {job}"
            assert not re.search(r"\bgh\b|git push|curl|propose", step.get("run", ""))


def test_actions_are_pinned_to_one_commit_each_with_its_version() -> None:
    pins: dict[str, set[str]] = {}
    for path in FILES:
        for line in path.read_text().splitlines():
            if "uses:" not in line or "$/" in line:
                continue
            found = re.fullmatch(r"\s+uses: ([\w-]+/[\w-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)", line)
            assert found, f"{path.name}: {line}"
            pins.setdefault(found[1], set()).add(found[2])
    assert {action: len(commits) for action, commits in pins.items()} == dict.fromkeys(pins, 1)
    assert pins.keys() == actions.ACTIONS.keys(), "the local twin has a stand-in for each, no more"


def test_every_job_ends_in_time() -> None:
    for name, job, content in jobs():
        minutes = content.get("timeout-minutes")
        if "steps" in content and not isinstance(minutes, str):
            assert 0 < minutes <= LONGEST_MINUTES, f"{name}: {job}"


def test_checkouts_leave_no_token_and_are_of_one_commit() -> None:
    for name, job, step in steps():
        if step.get("uses", "").startswith("actions/checkout@"):
            given = step["with"]
            assert given["persist-credentials"] is False, f"{name}: {job}"
            if name in ("benchmark-tmpl", "benchmark-multinode-tmpl"):
                assert given["ref"] == "${{ inputs.commit }}"


def test_every_input_is_used_and_declared() -> None:
    for name in NAMES:
        content = parsed(name)
        declared = [
            (content["on"][trigger] or {}).get("inputs", {})
            for trigger in content["on"]
            if isinstance(content["on"][trigger], dict)
        ]
        known = set().union(*declared)
        assert names_in(content, "inputs") == known, name


def test_both_triggers_of_a_sweep_take_the_same() -> None:
    on = parsed("run-sweep")["on"]
    assert on["workflow_dispatch"]["inputs"].keys() == on["workflow_call"]["inputs"].keys()


def test_what_a_job_reads_of_another_is_there() -> None:
    """An output that nobody sets is empty, and an empty matrix is a run of nothing."""
    for name in NAMES:
        content = parsed(name)["jobs"]
        for job, part in content.items():
            for path in names_in(part, "needs"):
                other, kind, *rest = path.split(".")
                assert other in workflow.needs(part), f"{name}: {job} doesn't need {other}"
                if kind == "outputs":
                    assert rest[0] in content[other]["outputs"], f"{name}: {job}: {path}"
            ids = {step["id"] for step in part.get("steps", ()) if "id" in step}
            assert {path.split(".")[0] for path in names_in(part, "steps")} <= ids, f"{name}: {job}"


def test_a_sweep_has_a_job_for_every_part_of_its_matrix() -> None:
    sweep = parsed("run-sweep")["jobs"]
    parts = {name for name in matrix.matrix([], canary=True) if name != "schema"}
    assert parts <= sweep.keys()
    assert parts <= sweep["plan"]["outputs"].keys()
    assert set(sweep["collect-evals"]["needs"]) == {"plan", *parts}
    for part in parts - {"canary"}:
        assert sweep[part]["needs"] == ["plan", "canary"]


@pytest.mark.parametrize("name", ["benchmark-tmpl", "benchmark-multinode-tmpl"])
def test_results_are_kept_before_they_are_judged(name: str) -> None:
    titles = [step["name"] for step in parsed(name)["jobs"]["cell"]["steps"]]
    order = [titles.index(title) for title in ("Launch", "Report", "Keep the results", "Judge")]
    assert order == sorted(order)
    kept = parsed(name)["jobs"]["cell"]["steps"][order[2]]
    assert kept["if"].startswith("always()")


def test_artifacts_say_whose_they_are_and_of_which_attempt() -> None:
    named = [
        step["with"]["name"]
        for _, _, step in steps()
        if step.get("uses", "").startswith("actions/upload")
    ]
    assert all(name.endswith("_${{ github.run_attempt }}") for name in named)
    assert len(named) == len(set(named)) + 1, "both templates keep the results of a cell"
    assert "results_${{ inputs.cell }}_${{ github.run_attempt }}" in named


def test_secrets_reach_only_the_environment_of_one_step() -> None:
    for name, job, content in jobs():
        assert not names_in(content.get("env", {}), "secrets"), f"{name}: {job}"
    held = {(name, step["name"]) for name, _, step in steps() if names_in(step, "secrets")}
    assert held == {
        *(("benchmark-tmpl", "Launch"), ("benchmark-multinode-tmpl", "Launch")),
        ("speedbench-al", "Collect"),
    }


def test_the_twin_can_read_every_workflow() -> None:
    for name in NAMES:
        for trigger in set(parsed(name)["on"]) & {"workflow_dispatch", "workflow_call"}:
            assert workflow.load(name, trigger).jobs
