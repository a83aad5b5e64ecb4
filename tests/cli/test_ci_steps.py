"""What the steps of workflows run: launch, gate, collect, outputs, a golden's pull request."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli import checkout
from tests.fakes import launcher
from utils import errors, records
from utils.ci import __main__ as command
from utils.ci import cell
from utils.evals import validate_scores
from utils.recipes import __main__ as recipes
from utils.recipes import commit, settings

COMMIT = "c0ffee00" * 5


def ci(*arguments: object) -> int:
    return errors.run(lambda: command.main([str(one) for one in arguments]))


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A sweep's plan of one cell, and the cell."""
    monkeypatch.setattr(commit, "commit", lambda _: COMMIT)
    monkeypatch.setattr(commit, "dirty", lambda _: False)
    folder = tmp_path / "plan"
    asked = ("--recipes", "smollm2_bf16_cpu_vllm_mtp", "--scenarios", "128/32")
    assert recipes.main(["plan", str(folder), *asked, "--concurrencies", "1 4"]) == 0
    return folder, str(records.read_json(folder / "sweep.json")["cells"][0]["id"])


def results_of(plan: tuple[Path, str], folder: Path) -> Path:
    folder.mkdir(parents=True)
    planned = plan[0] / "cells" / plan[1] / "plan.json"
    shutil.copy(planned, folder)
    for part in records.read_json(planned)["cells"]:
        launcher.leave(records.read_json(planned), part, folder)
    return folder


@pytest.fixture
def goldens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The goldens of the canned results."""
    judge = validate_scores.validate
    options = validate_scores.Options(golden=settings.ROOT / "tests" / "result_dirs" / "golden")
    monkeypatch.setattr(validate_scores, "validate", lambda path: judge(path, options))


def test_a_cell_is_launched_with_what_was_planned_and_nothing_else(
    plan: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name, text in {"EVAL_ONLY": "true", "IMAGE": "x", "PORT": "1234"}.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/somewhere")
    monkeypatch.setenv("THINKING", "on")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(os, "execvpe", lambda *words: started.append(words))
    started: list[Any] = []
    monkeypatch.chdir(tmp_path)
    folder, name = plan
    command.main(["launch", "--plan", "plan", "--cell", name, "--results", "results"])
    (program, argv, environment) = started[0]
    recipe = "benchmarks/single_node/smollm2_bf16_cpu_vllm_mtp.sh"
    assert (program, argv) == ("bash", ["bash", "runners/launch_local.sh", recipe])
    assert environment["EVAL_ONLY"] == "false"
    assert environment["THINKING"] == "off"
    assert environment["PORT"] == "1234", "the machine's own"
    assert environment["HF_TOKEN"] == "hf_secret"
    said = capsys.readouterr()
    assert "CONC" in said.out
    assert "hf_secret" not in said.out + said.err
    assert not environment.keys() & {"IMAGE", "GITHUB_STEP_SUMMARY"}
    assert environment["RESULT_DIR"] == str(tmp_path / "results")
    assert environment["PLAN_FILE"] == str(folder / "cells" / name / "plan.json")
    assert (tmp_path / "results" / "plan.json").is_file(), "a lost launch is missed by name"


def another_commit(plan: Path, _: str, results: Path) -> None:
    data = records.read_json(plan / "sweep.json") | {"commit": "f" * 40}
    records.write_json(plan / "sweep.json", data)


def used_folder(plan: Path, _: str, results: Path) -> None:
    results.mkdir()
    (results / "old.json").touch()


def odd_variable(plan: Path, name: str, results: Path) -> None:
    (plan / "cells" / name / "run.env").write_text("LD_PRELOAD=x\n")


def no_variable(plan: Path, name: str, results: Path) -> None:
    (plan / "cells" / name / "run.env").write_text("what\n")


def no_plan(plan: Path, _: str, results: Path) -> None:
    (plan / "sweep.json").unlink()


def kept(plan: Path, _: str, results: Path) -> None:
    data = records.read_json(plan / "sweep.json")
    data["cells"][0]["state"] = "kept"
    records.write_json(plan / "sweep.json", data)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (another_commit, f"the plan is of commit {'f' * 40}, this checkout is at {COMMIT}"),
        (used_folder, "holds files of something else"),
        (odd_variable, "'LD_PRELOAD' is no NAME=value of a recipe's variable"),
        (no_variable, "'what' is no NAME=value"),
        (no_plan, "sweep.json: can't be read"),
        (kept, "has no cell"),
    ],
)
def test_what_cannot_be_launched(
    harm: Any,
    said: str,
    plan: tuple[Path, str],
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "execvpe", lambda *_: pytest.fail("it was launched"))
    harm(*plan, tmp_path / "results")
    where = ("--plan", plan[0], "--cell", plan[1], "--results", tmp_path / "results")
    assert ci("launch", *where) == 2
    assert said in capsys.readouterr().err


def test_the_gate_asks_for_what_was_planned_whatever_the_results_say(
    plan: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = results_of(plan, tmp_path / "results")
    asked: list[Any] = []
    monkeypatch.setattr(validate_scores, "main", lambda words: asked.append(words) or 0)
    where = ("--plan", plan[0], "--cell", plan[1], "--results", folder)
    assert ci("gate", *where) == 0
    assert asked == [["--results-dir", str(folder), "--expected-concs", "1 4"]]

    records.write_json(
        folder / "plan.json", records.read_json(folder / "plan.json") | {"model_path": "/w"}
    )
    assert ci("gate", *where) == 0, "where the weights are is the launcher's to say"
    own = records.read_json(folder / "plan.json")
    own["cells"] = [part for part in own["cells"] if part.get("concurrency") != 4]
    records.write_json(folder / "plan.json", own)
    assert ci("gate", *where) == 3
    assert "differs from the sweep's in cells" in capsys.readouterr().err
    (folder / "plan.json").unlink()
    assert ci("gate", *where) == 2


def test_the_newest_attempt_is_collected_and_a_stranger_named(
    plan: tuple[Path, str], tmp_path: Path, goldens: None, capsys: Any
) -> None:
    artifacts = tmp_path / "artifacts"
    for attempt in (2, 10):
        results_of(plan, artifacts / f"results_{plan[1]}_{attempt}")
    (artifacts / f"results_{plan[1]}_2" / "results_arithmetic_conc4.json").unlink()
    (artifacts / "results_other_1").mkdir()
    arguments = ("--plan", plan[0], "--artifacts", artifacts)
    assert ci("collect", *arguments, "--out", tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "# PASS: 1 cells, 1 PASS" in said
    assert "artifact results_other_1 is of no cell of this sweep" in said
    shutil.rmtree(artifacts)
    assert ci("collect", *arguments, "--out", tmp_path / "none") == 3
    assert "INCOMPLETE" in (tmp_path / "none" / "summary.md").read_text()
    assert ci("collect", *arguments, "--out", tmp_path / "none") == 2
    assert "is not empty" in capsys.readouterr().err


def test_outputs_are_the_matrix_s(
    plan: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    assert ci("outputs", "--plan", plan[0]) == 2
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    assert ci("outputs", "--plan", plan[0]) == 0
    told = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert told["commit"] == COMMIT
    assert [json.loads(told[name]) for name in ("batch-1", "batch-2", "multinode")] == [[], [], []]
    assert json.loads(told["canary"])[0]["cell"] == plan[1]


def test_the_failsafe_is_red_inside_and_green_outside() -> None:
    assert ci("failsafe") == 0


def test_a_failsafe_that_passes_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("true"))
    assert ci("failsafe") == 1


def collected(folder: Path, outcome: str = "measured") -> Path:
    """A collection's folder with one cell."""
    attempt = folder / "off_n3_r1" / "attempt1"
    attempt.mkdir(parents=True)
    record = launcher.canned("results_speedbench_al_off_mtp3.json")
    (attempt / "results_speedbench_al_off_mtp3.json").write_text(json.dumps(record))
    entry = {
        **{"thinking": "off", "num_speculative_tokens": 3, "run": 1, "attempts": 1},
        **{"folder": "off_n3_r1/attempt1", "outcome": outcome, "reason": None, "detail": None},
        **{"acceptance_length": 1.9, "steps": 20},
    }
    state = {
        **{"schema": "collection/1", "collection": "smollm2", "asked": {}, "hardware": "cpu"},
        **{"model_revision": None, "started": "2026-12-01T10:00:00Z", "cells": [entry]},
    }
    assert records.schema_problem(state, "collection") is None
    records.write_json(folder / "collection.json", state)
    return folder


def test_a_collection_is_proposed_key_by_key(tmp_path: Path) -> None:
    """A bare repository stands in for GitHub's, and a script for gh."""
    tree, origin, tools = (tmp_path / name for name in ("tree", "origin", "tools"))
    for folder in (tree, tools):
        folder.mkdir()
    checkout.make(tree)
    subprocess.run(["git", "init", "-q", "--bare", origin], check=True)
    subprocess.run(["git", "-C", tree, "remote", "add", "origin", origin], check=True)
    gh = tools / "gh"
    gh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/gh.log\n')
    gh.chmod(0o755)
    golden = tree / "benchmarks" / "golden_al" / "smollm2_ngram.yaml"
    before = records.read_yaml(golden, "golden")
    words = ("--source", "https://run/1", "--branch", "golden/smollm2-1-1")
    done = subprocess.run(
        [sys.executable, "-m", "utils.ci", "golden-propose", collected(tmp_path / "c"), *words],
        cwd=tree,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        ["git", "-C", origin, "show", "golden/smollm2-1-1:benchmarks/golden_al/smollm2_ngram.yaml"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    golden.write_text(shown)
    after = records.read_yaml(golden, "golden")
    assert [len(entry["runs"]) for entry in before["entries"]] == [1]
    assert [len(entry["runs"]) for entry in after["entries"]] == [2], "added, nothing replaced"
    assert after["entries"][0]["runs"][0] == before["entries"][0]["runs"][0]
    said = (tmp_path / "gh.log").read_text()
    assert said.startswith("pr\ncreate\n--head\ngolden/smollm2-1-1\n")
    assert "https://run/1" in said


def test_nothing_measured_is_not_proposed(tmp_path: Path, capsys: Any) -> None:
    folder = collected(tmp_path / "c", outcome="not_available")
    assert ci("golden-propose", folder, "--source", "x", "--branch", "y") == 3
    assert "no cell was measured" in capsys.readouterr().err


def test_every_variable_of_the_machine_is_one_of_a_recipe() -> None:
    assert settings.VARIABLES.keys() >= cell.OF_THE_MACHINE
