"""Launches of disaggregated recipes on a real Slurm: one job, in which the recipe measures."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.shell.launched import Launched
from tests.shell.launches import EVALS, SLOW_EVAL, nothing_left
from tests.shell.slurm import Cluster

DISAGGREGATED = "dsv4_fp4_gb200_dynamo-vllm_mtp"


@pytest.fixture
def nodes(launch: Launched) -> Launched:
    """Launches of a disaggregated recipe, with srtctl faked: one job, one worker."""
    launch.in_image()
    launch.fake("srtctl")
    launch.environment |= {
        "IMAGE_DIR": str(launch.folder / "images"),
        "MODEL": "deepseek-ai/DeepSeek-V4-Pro",
        "PATH": f"{launch.environment['PATH']}:{Path(sys.executable).parent}",
        "TP": "8",
        "DP_SIZE": "1",
    }
    return launch


def test_a_disaggregated_recipe_measures_inside_its_job(nodes: Launched, slurm: Cluster) -> None:
    assert nodes.run("gb200-nv", DISAGGREGATED, **EVALS) == 0, nodes.out
    nothing_left(nodes, slurm)
    wanted = ["bench", "lm_eval_run", "lm_eval_run", "speedbench_al", "validate_scores", "report"]
    assert nodes.clients() == wanted
    log = [json.loads(line) for line in (nodes.folder / "clients.log").read_text().splitlines()]
    argv = {row["client"]: row["argv"] for row in log}
    front_end = argv["bench"][argv["bench"].index("--base-url") + 1]
    assert argv["speedbench_al"][-2:] == ["--metrics-url", f"{front_end}/metrics"]
    plan = json.loads((nodes.results / "plan.json").read_text())
    assert (plan["engine"], plan["topology"]["engines"]) == ("dynamo-vllm", 1)
    assert nodes.record()["reason"] is None
    assert "JobState=COMPLETED" in (nodes.results / "launch_job.txt").read_text()


def test_the_end_of_a_remote_server_is_noticed(nodes: Launched, slurm: Cluster) -> None:
    run = nodes.start("gb200-nv", DISAGGREGATED, clients=SLOW_EVAL, **EVALS)
    nodes.wait_until(lambda: nodes.clients().count("lm_eval_run") == 2, 60)
    os.kill(nodes.pid_of_engine(), signal.SIGKILL)
    assert run.wait(90) == 3
    nothing_left(nodes, slurm)
    assert "the server is gone: http://127.0.0.1" in (nodes.folder / "srt.log").read_text()
    assert (nodes.record()["step_status"], nodes.record()["reason"]) == (3, None)


def test_a_cancel_of_many_nodes(nodes: Launched, slurm: Cluster) -> None:
    run = nodes.start("gb200-nv", DISAGGREGATED, clients=SLOW_EVAL, **EVALS)
    nodes.wait_until(lambda: nodes.clients().count("lm_eval_run") == 2, 60)
    run.send_signal(signal.SIGTERM)
    assert run.wait(30) == 143
    nothing_left(nodes, slurm)
