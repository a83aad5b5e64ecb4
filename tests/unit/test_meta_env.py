from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import run_files
from utils import records
from utils.evals import meta_env

INFERENCEX: dict[str, Any] = {
    "is_multinode": False,
    "framework": "vllm",
    "precision": "fp4",
    "spec_decoding": "mtp",
    "recipe_fingerprint": "abc",
    "tp": 8,
    "pp": 1,
    "dcp_size": 1,
    "pcp_size": 1,
    "conc": 64,
    "ep": 1,
    "dp_attention": False,
    **{
        f"{role}_{key}": 1
        for role in ("prefill", "decode")
        for key in ("tp", "pp", "dcp_size", "pcp_size", "ep", "num_workers")
    },
    "prefill_dp_attention": False,
    "decode_dp_attention": False,
    "model": "deepseek-ai/DeepSeek-V4-Pro",
    "infmax_model_prefix": "dsv4",
    "hw": "b300",
    "isl": "8192",
    "osl": "1024",
}


def plan(*concurrencies: int) -> records.Json:
    cells = [
        {"kind": "score", "task": task, "concurrency": concurrency}
        for concurrency in concurrencies
        for task in ("a", "b")
    ]
    return run_files.plan(
        model="org/model",
        topology={"tp": 2, "ep_size": 4, "dp_attention": True, "engines": 2},
        cells=[*cells, {"kind": "al", "thinking": "off", "num_speculative_tokens": 3}],
        run_id="r",
        started="2026-12-01T00:00:00Z",
    )


def summarize(*concurrencies: int, completed: tuple[int, ...]) -> records.Json:
    summary = meta_env.summarize(plan(*concurrencies), isl=128, osl=64, conc=4, completed=completed)
    assert records.schema_problem(summary, "meta_env") is None
    return summary


def test_one_point_is_named_by_conc() -> None:
    summary = summarize(8, completed=(8,))
    assert summary["conc"] == 8
    assert "eval_concs" not in summary
    assert (summary["tp"], summary["ep"], summary["dp_attention"]) == (2, 4, True)
    assert summary["infmax_model_prefix"] == "smollm2"


def test_a_batch_says_what_came_back() -> None:
    summary = summarize(1, 8, 32, completed=(32, 1))
    assert summary["conc"] == 4
    assert summary["eval_concs"] == [1, 8, 32]
    assert summary["completed_eval_concs"] == [1, 32]
    assert summary["failed_eval_concs"] == [8]


def test_a_point_never_run_has_failed() -> None:
    assert summarize(1, 8, completed=())["failed_eval_concs"] == [1, 8]


def test_inferencex_files_fit_the_schema() -> None:
    assert records.schema_problem(INFERENCEX, "meta_env") is None
    batched = {"eval_concs": [1], "completed_eval_concs": [1], "failed_eval_concs": []}
    assert records.schema_problem({**INFERENCEX, **batched}, "meta_env") is None


@pytest.mark.parametrize(
    "change",
    [
        {"conc": "64"},
        {"conc": True},
        {"unknown": 1},
        {"failed_eval_concs": [1]},
        {"eval_concs": ["1"]},
    ],
)
def test_the_schema_refuses(change: dict[str, Any]) -> None:
    assert records.schema_problem({**INFERENCEX, **change}, "meta_env")


def test_command(tmp_path: Path) -> None:
    records.write_json(tmp_path / "plan.json", plan(1, 8))
    argv = ["--plan", str(tmp_path / "plan.json"), "--output", str(tmp_path / "meta_env.json")]
    assert meta_env.main([*argv, "--isl", "1", "--osl", "2", "--conc", "4", "8"]) == 0
    written = records.read_json(tmp_path / "meta_env.json")
    assert (written["completed_eval_concs"], written["failed_eval_concs"]) == ([8], [1])
    assert meta_env.main([*argv, "--isl", "1", "--osl", "2", "--conc", "4"]) == 0
