from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from utils import models, records
from utils.errors import UsageError
from utils.recipes import commit, run_plan, settings
from utils.recipes.settings import Settings

ROOT = settings.ROOT
BASE = ROOT / "benchmarks/single_node/smollm2_bf16_cpu_vllm.sh"
TWIN = BASE.with_name("smollm2_bf16_cpu_vllm_mtp.sh")
ENVIRONMENT = {
    "MODEL": "org/model",
    "TP": "2",
    "CONC": "4",
    "ISL": "128",
    "OSL": "64",
    "MAX_MODEL_LEN": "2048",
}


def load(recipe: Path = BASE, **env: str) -> Settings:
    return settings.load(recipe, {**ENVIRONMENT, **env})


def make(recipe: Path = BASE, words: str = "", **env: str) -> records.Json:
    asked = load(recipe, **env)
    return run_plan.make(asked, run_plan.load_speculation(asked, words.split()))


def test_a_plan_fits_its_schema() -> None:
    plan = run_plan.stamp(make(TWIN, "ngram 3", RUN_EVAL="true"))
    assert records.schema_problem(plan, "plan") is None
    assert plan["recipe"] == "benchmarks/single_node/smollm2_bf16_cpu_vllm_mtp.sh"
    assert plan["run_id"][:16] == plan["started"][:19].replace("-", "").replace(":", "") + "Z"


@pytest.mark.parametrize("name", [*run_plan.MUST_AGREE, "schema", "run_id", "commit", "started"])
def test_every_property_is_needed_and_described(name: str) -> None:
    plan = run_plan.stamp(make())
    del plan[name]
    assert f"'{name}' is a required property" in str(records.schema_problem(plan, "plan"))
    schema = records.read_json(records.SCHEMAS / "plan.json")
    assert schema["properties"][name]["description"]


def test_several_concurrencies_are_a_cell_each() -> None:
    plan = make(CONC="1 8", RUN_EVAL="true")
    assert [(c["kind"], c["concurrency"]) for c in plan["cells"]] == [
        ("score", 8),
        ("throughput", 1),
        ("throughput", 8),
    ]
    assert load(CONC="1 8")["RESULT_FILENAME"].endswith("_osl64")
    assert load(CONC="8")["RESULT_FILENAME"].endswith("_osl64_conc8")
    assert load(CONC="1 8").exports()["CONC"] == "1 8"


def test_cells_of_a_full_run() -> None:
    plan = make(TWIN, "ngram 3", RUN_EVAL="true", EVAL_CONCURRENT_REQUESTS="1 8")
    assert plan["cells"] == [
        {"kind": "score", "task": "arithmetic", "concurrency": 1},
        {"kind": "score", "task": "arithmetic", "concurrency": 8},
        {"kind": "al", "thinking": "off", "num_speculative_tokens": 3},
        {"kind": "throughput", "isl": 128, "osl": 64, "concurrency": 4},
    ]


@pytest.mark.parametrize(
    ("env", "kinds"),
    [
        ({}, ["throughput"]),
        ({"RUN_EVAL": "true"}, ["score", "al", "throughput"]),
        ({"EVAL_ONLY": "true"}, ["score", "al"]),
    ],
)
def test_kinds_of_cells(env: dict[str, str], kinds: list[str]) -> None:
    assert [cell["kind"] for cell in make(TWIN, "ngram 3", **env)["cells"]] == kinds


def test_no_acceptance_length_without_speculation() -> None:
    assert [cell["kind"] for cell in make(EVAL_ONLY="true")["cells"]] == ["score"]


@pytest.mark.parametrize(
    ("env", "engines"),
    [({}, 1), ({"DP_SIZE": "3"}, 3), ({"DP_ATTENTION": "true", "TP": "8"}, 8)],
)
def test_engines_expected(env: dict[str, str], engines: int) -> None:
    assert make(**env)["topology"]["engines"] == engines


def test_speculation_is_recorded() -> None:
    words = "draft_model 2 model=org/draft rejection_sample_method=block"
    plan = make(TWIN, words)
    keys = ("spec_decoding", "num_speculative_tokens", "draft_model", "draft_sample_method")
    assert [plan[key] for key in keys] == ["draft_model", 2, "org/draft", None]
    assert plan["rejection_sample_method"] == "block"
    assert make()["spec_decoding"] == "none"


def test_defaults() -> None:
    asked = load()
    assert asked["MODEL_PATH"] == "org/model"
    assert asked["MODEL_PREFIX"] == "smollm2"
    assert asked["EVAL_CONCURRENT_REQUESTS"] == (4,)
    assert asked["THINKING"] == models.load("smollm2").golden_thinking
    exports = asked.exports()
    assert exports["RUN_EVAL"] == "false"
    assert exports["EVAL_CONCURRENT_REQUESTS"] == "4"
    assert (exports["ENGINE"], exports["PRECISION"], exports["HW"]) == ("vllm", "bf16", "cpu")
    assert settings.load(BASE, {**ENVIRONMENT, **exports, "RESULT_DIR": "/tmp"}), "idempotent"


def test_a_recipe_may_require_variables_of_its_own() -> None:
    with pytest.raises(UsageError, match="set TP DRAFT"):
        settings.load(BASE, {**ENVIRONMENT, "TP": ""}, ["TP", "PORT", "DRAFT"])


def test_a_recipe_from_elsewhere_keeps_its_path(tmp_path: Path) -> None:
    asked = settings.load(tmp_path / BASE.name, ENVIRONMENT)
    assert asked.recipe_label == str(tmp_path / BASE.name)


def test_adopts_the_plan_of_this_run_only(tmp_path: Path) -> None:
    wanted = make()
    file = tmp_path / "plan.json"
    records.write_json(file, run_plan.stamp(wanted), "plan")
    assert run_plan.adopt(file, wanted)["run_id"]
    for key, value in {"model": "x", "cells": [], "synthetic_acceptance": True}.items():
        with pytest.raises(UsageError, match=f"plan of another run: {key}"):
            run_plan.adopt(file, {**wanted, key: value})
    file.write_text("{}")
    with pytest.raises(UsageError, match="schema plan"):
        run_plan.adopt(file, wanted)


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "file").write_text("1")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def test_commit_of_branch_packed_and_detached(checkout: Path, tmp_path: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    assert commit.commit(checkout) == head
    git(checkout, "worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    assert commit.commit(tmp_path / "linked") == head
    git(checkout, "pack-refs", "--all")
    assert commit.commit(checkout) == head
    assert commit.commit(tmp_path / "linked") == head
    git(checkout, "checkout", "-q", "--detach")
    assert commit.commit(checkout) == head


def test_commit_without_a_repository(tmp_path: Path) -> None:
    assert commit.commit(tmp_path) == "unknown"
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    assert commit.commit(tmp_path) == "unknown"


def test_dirty(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit.dirty(checkout) is False
    (checkout / "new").write_text("untracked files don't count")
    assert commit.dirty(checkout) is False
    (checkout / "file").write_text("2")
    assert commit.dirty(checkout) is True
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert commit.dirty(tmp_path / "none") is None
    monkeypatch.setenv("PATH", "/nowhere")
    assert commit.dirty(checkout) is None


def test_writes_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {**ENVIRONMENT, "RESULT_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(key, value)
    assert run_plan.main(["--recipe", str(TWIN), "--", "ngram", "3"]) == 0
    plan: Any = json.loads((tmp_path / "plan.json").read_text())
    assert plan["num_speculative_tokens"] == 3


def test_an_impossible_result_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="RESULT_DIR"):
        settings.create_result_dir(str(tmp_path / "file" / "below"))
