"""Recipes run as processes: the real library, a PATH with a fake engine, faked clients."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import until

if TYPE_CHECKING:
    from tests.shell.launched import Launched
    from tests.shell.slurm import Cluster

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "benchmarks" / "single_node"
BASE = RECIPES / "smollm2_bf16_cpu_vllm.sh"
TWIN = RECIPES / "smollm2_bf16_cpu_vllm_mtp.sh"
FAKES = ROOT / "tests" / "fakes"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
STOP_LIMIT_S = 7.5  # a GitHub runner's time between INT and TERM
_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(autouse=True)
def unreaped_orphans() -> Iterator[None]:
    """Orphans become our children and stay zombies, as in a container without an init."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Run:
    """One script, run under an environment of its own; its processes carry a token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.port = free_port()
        self.token = f"SPECGATE_TEST={folder}"
        self.environment = {
            "PATH": f"{FAKES / 'bin'}:/usr/bin:/bin",
            "HOME": str(folder),
            "HARNESS_PYTHON": str(FAKES / "harness_python"),
            "FAKE_PYTHON": sys.executable,
            "FAKE_LOG": str(folder / "clients.log"),
            "FAKE_VLLM_LOG": str(folder / "vllm.log"),
            "MODEL": MODEL,
            "TP": "1",
            "CONC": "4",
            "ISL": "128",
            "OSL": "64",
            "MAX_MODEL_LEN": "2048",
            "PORT": str(self.port),
            "RESULT_DIR": str(self.results),
            "SERVER_READY_TIMEOUT_S": "20",
            "SPECGATE_TEST": str(folder),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self, script: Path = BASE, *args: str, engine: Any = None, clients: Any = None, **env: str
    ) -> subprocess.Popen[bytes]:
        environment = {**self.environment, **env}
        if engine:
            environment["FAKE_ENGINE"] = json.dumps(engine)
        if clients:
            environment["FAKE_CLIENTS"] = json.dumps(clients)
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                ["bash", str(script), *args], env=environment, stdout=out, stderr=err, cwd="/"
            )
        return self.process

    def run(self, script: Path = BASE, *args: str, **options: Any) -> int:
        return self.start(script, *args, **options).wait(30)

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    def clients(self) -> list[str]:
        """The clients that ran, in order."""
        return [row["client"] for row in self.client_log()]

    def client_log(self) -> list[Any]:
        log = self.folder / "clients.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def read(self, name: str) -> Any:
        return json.loads((self.results / name).read_text())

    def alive(self) -> list[str]:
        """Every process of this run that still runs, whatever it calls itself now."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "environ").read_bytes().split(b"\0")
                name = (folder / "comm").read_text().strip()
            except OSError:
                continue
            if self.token.encode() in words:
                found.append(f"{folder.name} {name}")
        return found

    def pids(self, program: str) -> list[int]:
        """Its processes that run a script or module of this name, their supervisors left out."""
        found = []
        for line in self.alive():
            try:
                argv = Path(f"/proc/{line.split()[0]}/cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue  # it has ended
            if any(word.endswith(program) for word in argv[1:4]):
                found.append(int(line.split()[0]))
        return found

    def wait_until(self, what: Any, seconds: float = 10.0) -> None:
        until(what, seconds, lambda: self.err)


@pytest.fixture
def recipe(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    for line in run.alive():  # only what a failing test left behind
        os.kill(int(line.split()[0]), signal.SIGKILL)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real Slurm with the partitions that the launchers name."""
    from tests.shell.slurm import Cluster

    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def launch(slurm: Cluster, tmp_path: Path) -> Iterator[Launched]:
    """A launcher whose cluster that is."""
    from tests.shell.launched import Launched

    launched = Launched(tmp_path, slurm.environment)
    yield launched
    launched.end()
    slurm.ask("scancel", f"--name={launched.job_name()}")
