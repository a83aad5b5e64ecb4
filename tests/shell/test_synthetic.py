"""SYNTHETIC_ACCEPTANCE=true: the golden AL reaches the engine of a throughput run alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.shell.conftest import RECIPES, TWIN, Run

FORCED = {"SYNTHETIC_ACCEPTANCE": "true", "TP": "8"}


def serve(recipe: Run, name: str, **env: str) -> Any:
    assert recipe.run(RECIPES / f"{name}.sh", DRY_RUN="1", **{**FORCED, **env}) == 0, recipe.err
    return json.loads(recipe.out.splitlines()[0])


def test_vllm_gets_it_in_its_speculative_config(recipe: Run) -> None:
    argv = serve(recipe, "dsv4_fp4_b300_vllm_mtp")["argv"]
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == {
        "method": "mtp",
        "num_speculative_tokens": 2,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": 2.27,
    }


def test_it_is_the_thinking_modes_own(recipe: Run) -> None:
    argv = serve(recipe, "dsv4_fp4_b300_vllm_mtp", THINKING="off")["argv"]
    assert '"synthetic_acceptance_length": 2.61' in argv[argv.index("--speculative-config") + 1]


def test_sglang_gets_it_in_its_environment(recipe: Run) -> None:
    found = serve(recipe, "dsv4_fp4_b300_sglang_mtp")
    assert found["env"]["SGLANG_SIMULATE_ACC_LEN"] == "2.49"
    assert found["env"]["SGLANG_SIMULATE_ACC_METHOD"] == "match-expected"
    assert found["env"]["SGLANG_SIMULATE_ACC_TOKEN_MODE"] == "real-draft-token"
    real = serve(recipe, "dsv4_fp4_b300_sglang_mtp", SYNTHETIC_ACCEPTANCE="false")
    assert real["argv"] == found["argv"]
    assert not [name for name in real["env"] if "SIMULATE" in name]


@pytest.mark.parametrize(
    ("name", "env", "words"),
    [
        ("glm5.2_fp4_b300_vllm_mtp", {"THINKING": "off"}, "nothing to force; collect one"),
        ("dsv4_fp4_b300_vllm_mtp", {"RUN_EVAL": "true"}, "made-up acceptance can't be evaluated"),
        ("dsv4_fp4_b300_sglang_mtp", {"EVAL_ONLY": "true"}, "made-up acceptance"),
    ],
)
def test_no_golden_and_no_evals(recipe: Run, name: str, env: dict[str, str], words: str) -> None:
    assert recipe.run(RECIPES / f"{name}.sh", DRY_RUN="1", **FORCED, **env) == 2
    assert words in recipe.err
    assert recipe.out == ""


def test_the_engine_is_started_with_it(recipe: Run) -> None:
    """The demo's golden has two runs; their pooled AL is forced."""
    assert recipe.run(TWIN, SYNTHETIC_ACCEPTANCE="true") == 0, recipe.err
    asked = (recipe.folder / "vllm.log").read_text()
    assert '"synthetic_acceptance_length": 2.9604' in asked
    assert recipe.read("plan.json")["synthetic_acceptance"] is True


def test_a_readiness_check_ends_a_server_that_cannot(recipe: Run, tmp_path: Path) -> None:
    """As vLLM 0.32 on a CPU: healthy, and gone with the first generation."""
    engine = {"die_on_request": [1, 1]}
    assert recipe.run(TWIN, engine=engine, SYNTHETIC_ACCEPTANCE="true") == 3
    assert "the server ended with status 1 during ready" in recipe.err
    assert recipe.clients() == []
