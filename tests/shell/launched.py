"""A launcher run as a process, with the fake engine: what crosses into the step is run.env alone.

The step's environment has none of the test's variables, so the fakes are reached through programs
that this module writes: HARNESS_PYTHON and the `vllm` beside ENGINE_PYTHON.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.shell.conftest import FAKES, MODEL, ROOT, free_port
from tests.waiting import until

RUNNERS = ROOT / "runners"


class Launched:
    """One launcher at a time; its results are in `results`."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = {}) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.runs = folder / "runs"
        self.port = free_port()
        engine = folder / "engine" / "bin"
        engine.mkdir(parents=True)
        (engine / "python").symlink_to(sys.executable)
        self.told = {
            "FAKE_PYTHON": sys.executable,
            "FAKE_LOG": str(folder / "clients.log"),
            "FAKE_VLLM_LOG": str(folder / "vllm.log"),
        }
        self.environment = {
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(folder),
            "HARNESS_PYTHON": str(folder / "harness_python"),
            "ENGINE_PYTHON": str(engine / "python"),
            "RUNS_DIR": str(self.runs),
            "RESULT_DIR": str(self.results),
            "SPEEDBENCH_DIR": str(folder),
            "MODEL": MODEL,
            "MODEL_PATH": MODEL,
            "TP": "1",
            "CONC": "4",
            "ISL": "128",
            "OSL": "64",
            "MAX_MODEL_LEN": "2048",
            "PORT": str(self.port),
            "SERVER_READY_TIMEOUT_S": "20",
            "CONTAINER": "none",
            **environment,
        }
        (folder / "bin").mkdir()

    def fake(self, *names: str) -> None:
        """Put stand-ins before the real programs."""
        for name in names:
            (self.folder / "bin" / name).symlink_to(FAKES / "bin" / name)

    def in_image(self) -> None:
        """Run in a container: pyxis and enroot are faked, programs are those of the image."""
        self.fake("srun", "enroot", "unsquashfs")
        image = self.folder / "image"
        image.mkdir()
        (image / "python3").symlink_to(self.folder / "harness_python")
        (image / "vllm").symlink_to(self.folder / "engine/bin/vllm")
        del self.environment["ENGINE_PYTHON"]
        self.environment |= {"CONTAINER": "pyxis", "IMAGE": "vllm/x:1", "FAKE_IMAGE": str(image)}

    def _write_programs(self) -> None:
        for name, program in (
            ("harness_python", FAKES / "harness_python"),
            ("engine/bin/vllm", FAKES / "bin" / "vllm"),
        ):
            lines = [f"export {key}={shlex.quote(text)}" for key, text in self.told.items()]
            file = self.folder / name
            file.write_text("\n".join(["#!/bin/bash", *lines, f'exec {program} "$@"', ""]))
            file.chmod(0o755)

    def start(
        self, launcher: str, *args: str, engine: Any = None, clients: Any = None, **env: str
    ) -> subprocess.Popen[bytes]:
        self.told["FAKE_ENGINE"] = json.dumps(engine or {})
        self.told["FAKE_CLIENTS"] = json.dumps(clients or {})
        self._write_programs()
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            return subprocess.Popen(
                ["bash", str(RUNNERS / f"launch_{launcher}.sh"), *args],
                env={**self.environment, **env},
                stdout=out,
                stderr=err,
                cwd="/",
            )

    def run(self, launcher: str, *args: str, **options: Any) -> int:
        return self.start(launcher, *args, **options).wait(60)

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text() + (self.folder / "err").read_text()

    def job_name(self) -> str:
        """What its Slurm job is called, or was."""
        found = re.search(r"JobName=(\S+)", self._account())
        return found[1] if found else "none"

    def _account(self) -> str:
        file = self.results / "launch_job.txt"
        return file.read_text() if file.exists() else ""

    def record(self) -> Any:
        """launch.json."""
        return json.loads((self.results / "launch.json").read_text())

    def clients(self) -> list[str]:
        """The clients that ran, in order."""
        log = self.folder / "clients.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line)["client"] for line in lines]

    def alive(self) -> list[str]:
        """Every process that works for these results, wherever it was started from."""
        return [f"{pid} {name}" for pid, name, _ in self._processes()]

    def pid_of(self, *words: str) -> int:
        """The process whose command line begins with these words."""
        found = [pid for pid, _, argv in self._processes() if argv[: len(words)] == list(words)]
        assert len(found) == 1, f"{words}: {found}"
        return found[0]

    def pid_of_engine(self) -> int:
        found = [pid for pid, _, argv in self._processes() if "engine.py" in " ".join(argv)]
        assert len(found) == 1, found
        return found[0]

    def _processes(self) -> Iterator[tuple[int, str, list[str]]]:
        marks = (f"RESULT_DIR={self.results}".encode(), f"HOME={self.folder}".encode())
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                name = (folder / "comm").read_text().strip()
                argv = (folder / "cmdline").read_bytes().decode().split("\0")[:-1]
            except OSError:
                continue
            if any(mark in environment for mark in marks):
                yield int(folder.name), name, argv

    def wait_until(self, what: Any, seconds: float = 15.0) -> None:
        until(what, seconds, lambda: self.out)

    def end(self) -> None:
        """Only what a failing test left behind."""
        for line in self.alive():
            os.kill(int(line.split()[0]), signal.SIGKILL)
