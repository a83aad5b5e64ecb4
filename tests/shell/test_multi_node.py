"""A disaggregated recipe in its job, without a cluster: where acceptance is read from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.shell.conftest import FAKES, ROOT, Run

RECIPE = ROOT / "benchmarks" / "multi_node" / "dsv4_fp4_gb300_dynamo-vllm_mtp.sh"
SERVED = "deepseek-ai/DeepSeek-V4-Pro"


@pytest.fixture
def job(recipe: Run) -> Iterator[Run]:
    """A front end that answers, and a recipe that is told of it as srt-slurm does."""
    recipe.environment |= {
        "MODEL": SERVED,
        "TP": "4",
        "RUN_EVAL": "true",
        "SRT_FRONTEND_HOST": "127.0.0.1",
        "SRT_FRONTEND_PORT": str(recipe.port),
    }
    words = ["serve", "m", "--port", str(recipe.port), "--served-model-name", SERVED]
    with subprocess.Popen([sys.executable, str(FAKES / "engine.py"), *words]) as engine:
        yield recipe
        engine.terminate()


def test_each_decode_worker_is_read(job: Run) -> None:
    workers = f"127.0.0.1:{job.port},localhost:{job.port}"
    assert job.run(RECIPE, SRT_DECODE_ENDPOINTS=workers, DP_SIZE="2") == 0, job.err
    argv = {row["client"]: row["argv"] for row in job.client_log()}
    urls = [f"http://{address}/metrics" for address in workers.split(",")]
    assert argv["speedbench_al"][-4:] == ["--metrics-url", urls[0], "--metrics-url", urls[1]]
    assert argv["lm_eval_run"][argv["lm_eval_run"].index("--base-url") + 1].endswith(str(job.port))
    assert job.read("plan.json")["topology"]["engines"] == 2
    assert job.alive() == []


def test_without_their_addresses_the_logs_are_read(job: Run) -> None:
    logs = str(job.folder / "logs")
    assert job.run(RECIPE, SRT_LOG_DIR=logs) == 0, job.err
    rows = [row for row in job.client_log() if row["client"] in ("dynamo_logs", "speedbench_al")]
    assert [row["argv"][2:5] for row in rows] == [
        ["mark", "start", logs],
        ["measure", "--base-url", f"http://127.0.0.1:{job.port}"],
        ["mark", "end", logs],
        [logs, str(job.results), "--plan"],
    ]
    measure = rows[1]["argv"]
    assert measure[measure.index("--metrics") + 1] == "none"
    assert measure[-2:] == ["--output-dir", logs]


def test_a_worker_that_never_shows_its_metrics(job: Run) -> None:
    env = {"SRT_DECODE_ENDPOINTS": "127.0.0.1:1", "SERVER_READY_TIMEOUT_S": "1"}
    assert job.run(RECIPE, **env) == 3
    assert "no metrics within 1 s: http://127.0.0.1:1/metrics" in job.err or (
        "the server is gone" in (job.results / "server.log").read_text()
    )
    assert "bench" not in job.clients()
    assert job.alive() == []


def test_it_is_started_by_a_launcher(job: Run) -> None:
    assert job.run(RECIPE, SRT_FRONTEND_HOST="") == 2
    assert "start it with runners/launch_<cluster>.sh" in job.err
    assert os.listdir(job.results) == []
