"""Launches and their ends on the real vLLM: its engine-core process is a child that must go too."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.server import ROOT, Embedded, free_port
from tests.shell.slurm import Cluster
from tests.waiting import until
from utils import processes, records
from utils.serving import supervise

TWIN = "smollm2_bf16_cpu_vllm_mtp"
ENGINE_CORE = "VLLM::EngineCor"  # as /proc shows it


class Launch:
    """One launcher on the real engine."""

    def __init__(self, folder: Path, engine: Embedded, prompts: Path) -> None:
        self.results = folder / "results"
        self.log = folder / "out"
        self.port = free_port()
        self.environment = {
            **os.environ,
            "HARNESS_PYTHON": sys.executable,
            "ENGINE_PYTHON": str(engine.python),
            "MODEL_PATH": str(engine.model_path),
            "SPEEDBENCH_DIR": str(prompts.parent),
            "RESULT_DIR": str(self.results),
            "RUNS_DIR": str(folder),
            "EVAL_ONLY": "true",
            "PORT": str(self.port),
            **{"TP": "1", "CONC": "4", "ISL": "128", "OSL": "32", "MAX_MODEL_LEN": "2048"},
        }
        self.family: set[int] = set()

    def start(self, launcher: str, **variables: str) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", str(ROOT / "runners" / f"launch_{launcher}.sh"), TWIN],
                env={**self.environment, **variables},
                stdout=log,
                stderr=log,
            )
        return self.process

    def cores(self) -> list[int]:
        """Its engine-core processes; a title of its own has overwritten what else they carry."""
        self.family |= supervise.descendants(self.process.pid)
        return [pid for pid in self.family if _name(pid) == ENGINE_CORE]

    def left(self) -> list[str]:
        """Those that were seen below it and still run, and who listens on its port."""
        found = [f"{pid} {_name(pid)}" for pid in self.family if processes.alive(pid)]
        return found + [str(row) for row in processes.listeners(self.port)]

    def wait_until(self, what: Callable[[], object], seconds: float = 200.0) -> None:
        until(what, seconds, self.log.read_text)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"


@pytest.fixture
def launch(engine: Embedded, prompts: Path, tmp_path: Path) -> Iterator[Launch]:
    launched = Launch(tmp_path, engine, prompts)
    yield launched
    for line in launched.left():  # only what a failing test left behind
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(line.split()[0]), signal.SIGKILL)


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
    assert launch.left() == []


def in_eval(launch: Launch) -> subprocess.Popen[bytes]:
    """A launch whose lm-eval has begun; it may be over a moment later."""
    run = launch.start("local")
    log = launch.results / "lm_eval_arithmetic_conc4.log"
    launch.wait_until(lambda: log.exists() and "/48" in log.read_text())
    return run


def test_the_recipe_is_killed_in_an_eval(launch: Launch) -> None:
    run = in_eval(launch)
    assert launch.cores()
    run.kill()
    assert run.wait() == -signal.SIGKILL
    launch.wait_until(lambda: not launch.left(), 20)


def test_the_engine_core_dies_in_an_eval(launch: Launch) -> None:
    run = in_eval(launch)
    (core,) = launch.cores()
    os.kill(core, signal.SIGKILL)
    assert run.wait(60) == 3, launch.log.read_text()
    assert (launch.results / "meta_env.json").exists()
    assert not re.search(r"^PASS +AL ", launch.log.read_text(), re.MULTILINE)
    assert launch.left() == []


def test_a_cancel_while_the_engine_core_loads(launch: Launch) -> None:
    run = launch.start("local")
    launch.wait_until(launch.cores)
    run.send_signal(signal.SIGINT)
    assert run.wait(20) == 130, launch.log.read_text()
    assert launch.left() == []
