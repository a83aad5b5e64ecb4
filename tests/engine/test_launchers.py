"""Launches and their ends on the real vLLM: its engine-core process is a child that must go too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.server import ROOT, Embedded, free_port
from tests.shell.slurm import Cluster
from utils import records

TWIN = "smollm2_bf16_cpu_vllm_mtp"
ENGINE_CORE = "VLLM::EngineCor"  # as /proc shows it


class Launch:
    """One launcher on the real engine; its processes are known by their RESULT_DIR."""

    def __init__(self, folder: Path, engine: Embedded, prompts: Path) -> None:
        self.results = folder / "results"
        self.log = folder / "out"
        self.environment = {
            **os.environ,
            "HARNESS_PYTHON": sys.executable,
            "ENGINE_PYTHON": str(engine.python),
            "MODEL_PATH": str(engine.model_path),
            "SPEEDBENCH_DIR": str(prompts.parent),
            "RESULT_DIR": str(self.results),
            "RUNS_DIR": str(folder),
            "EVAL_ONLY": "true",
            "PORT": str(free_port()),
            **{"TP": "1", "CONC": "4", "ISL": "128", "OSL": "32", "MAX_MODEL_LEN": "2048"},
        }

    def start(self, launcher: str, **variables: str) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(
                ["bash", str(ROOT / "runners" / f"launch_{launcher}.sh"), TWIN],
                env={**self.environment, **variables},
                stdout=log,
                stderr=log,
            )

    def processes(self, name: str = "") -> list[int]:
        """Those that have this name, all without one."""
        mark = f"RESULT_DIR={self.results}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                ours = mark in (folder / "environ").read_bytes().split(b"\0")
                named = name in ("", (folder / "comm").read_text().strip())
            except OSError:
                continue
            if ours and named:
                found.append(int(folder.name))
        return found

    def wait_until(self, what: Callable[[], object], seconds: float = 150.0) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"never came true: {self.log.read_text()}"
            time.sleep(0.1)


@pytest.fixture
def launch(engine: Embedded, prompts: Path, tmp_path: Path) -> Iterator[Launch]:
    launched = Launch(tmp_path, engine, prompts)
    yield launched
    for pid in launched.processes():  # only what a failing test left behind
        os.kill(pid, signal.SIGKILL)


def test_a_real_slurm_runs_the_real_engine_to_a_green_gate(launch: Launch, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "slurm")
    cluster.folder.mkdir()
    try:
        cluster.start()
        run = launch.start("b300-nv", CONTAINER="none", **cluster.environment)
        assert run.wait(300) == 0, launch.log.read_text()
    finally:
        cluster.stop()
    passed = [line for line in launch.log.read_text().splitlines() if line.startswith("PASS ")]
    assert [line.split(":")[0].removeprefix("PASS").strip() for line in passed[-2:]] == [
        "arithmetic conc=4",
        "AL off N=3",
    ]
    record = records.read_json(launch.results / "launch.json")
    assert (record["status"], record["step_status"], record["reason"]) == (0, 0, None)
    assert launch.processes() == []


def in_eval(launch: Launch) -> subprocess.Popen[bytes]:
    """A launch that is in the middle of lm-eval."""
    run = launch.start("local")
    log = launch.results / "lm_eval_arithmetic_conc4.log"
    launch.wait_until(lambda: log.exists() and "2/48" in log.read_text())
    return run


def test_the_recipe_is_killed_in_an_eval(launch: Launch) -> None:
    run = in_eval(launch)
    assert launch.processes(ENGINE_CORE)
    run.kill()
    assert run.wait() == -signal.SIGKILL
    launch.wait_until(lambda: not launch.processes(), 8)


def test_the_engine_core_dies_in_an_eval(launch: Launch) -> None:
    run = in_eval(launch)
    (core,) = launch.processes(ENGINE_CORE)
    os.kill(core, signal.SIGKILL)
    assert run.wait(60) == 3, launch.log.read_text()
    assert "during lm_eval" in launch.log.read_text()
    assert (launch.results / "meta_env.json").exists()
    assert launch.processes() == []


def test_a_cancel_while_the_engine_core_loads(launch: Launch) -> None:
    run = launch.start("local")
    launch.wait_until(lambda: launch.processes(ENGINE_CORE))
    run.send_signal(signal.SIGINT)
    assert run.wait(15) == 130, launch.log.read_text()
    assert launch.processes() == []
