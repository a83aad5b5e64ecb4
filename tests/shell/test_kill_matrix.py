"""What can go wrong, in every phase of a recipe: nothing alive, no half file, the right status."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.shell.conftest import STOP_LIMIT_S, TWIN, Run


@dataclass(frozen=True)
class Phase:
    """`client` is what runs in it; told to wait, it makes the phase last."""

    client: str
    engine: dict[str, Any] = field(default_factory=dict)
    waits: bool = True
    server: bool = True
    disk_full: int = 3


PHASES = {
    "loading": Phase("utils.serving.ready", {"warmup_until": "RELEASE"}, waits=False),
    "serving": Phase("bench"),
    "lm-eval": Phase("lm_eval_run"),
    "AL": Phase("speedbench_al"),
    # Everything was written before; the report, which can't be, doesn't change the verdict.
    "validation": Phase("validate_scores", server=False, disk_full=0),
}


class Matrix:
    """One run that has come to a phase and stays there until released."""

    def __init__(self, recipe: Run, phase: Phase) -> None:
        self.recipe = recipe
        self.phase = phase
        self.release = recipe.folder / "release"
        engine = {key: str(self.release) for key in phase.engine} | {"workers": ["polite"]}
        clients = {phase.client: {"until": str(self.release)}} if phase.waits else {}
        self.process = recipe.start(TWIN, engine=engine, clients=clients, RUN_EVAL="true")
        recipe.wait_until(self._arrived)

    def _arrived(self) -> bool:
        if self.phase.waits:
            return self.recipe.clients()[-1:] == [self.phase.client]
        return bool(self.recipe.pids(self.phase.client) and self.recipe.pids("engine.py"))

    def kill(self, program: str) -> None:
        (pid,) = self.recipe.pids(program)
        os.kill(pid, signal.SIGKILL)

    def client_dies(self) -> None:
        self.kill("client.py" if self.phase.waits else self.phase.client)

    def disk_fills(self) -> None:
        """To the last block; then the phase goes on."""
        with (self.recipe.results / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass
        self.release.touch()


# Event → what happens, and the status that must come of it.
EVENTS: dict[str, tuple[Callable[[Matrix], None], int | None]] = {
    "INT": (lambda run: run.process.send_signal(signal.SIGINT), 130),
    "TERM": (lambda run: run.process.send_signal(signal.SIGTERM), 143),
    "KILL": (lambda run: run.process.kill(), -9),
    "server-death": (lambda run: run.kill("engine.py"), 3),
    "client-death": (Matrix.client_dies, 3),
    "disk-full": (Matrix.disk_fills, None),  # by phase
}
CELLS = [
    (phase, event)
    for phase in PHASES
    for event in EVENTS
    if PHASES[phase].server or event != "server-death"  # there is none any more
]


@pytest.fixture
def small_disk(recipe: Run) -> Iterator[None]:
    """The results lie on a file system of a few blocks."""
    recipe.results.mkdir()
    root = [] if os.getuid() == 0 else ["sudo", "-n"]
    if root and not shutil.which("sudo"):
        needs.missing("a small file system can't be mounted without root")
    options = f"size=256k,uid={os.getuid()},gid={os.getgid()}"
    mount = [*root, "mount", "-t", "tmpfs", "-o", options, "specgate-test", str(recipe.results)]
    if subprocess.run(mount, check=False).returncode:
        needs.missing("a small file system can't be mounted here")
    yield
    subprocess.run([*root, "umount", str(recipe.results)], check=True)


def half_written(results: Path) -> list[str]:
    """Files that aren't whole, and temporary ones."""
    found = [str(path) for path in results.glob(".*")]
    for path in results.glob("*.json"):
        try:
            json.loads(path.read_text())
        except ValueError:
            found.append(str(path))
    return found


@pytest.mark.parametrize(("phase", "event"), CELLS, ids=[f"{p}-{e}" for p, e in CELLS])
def test_cell(request: pytest.FixtureRequest, recipe: Run, phase: str, event: str) -> None:
    if event == "disk-full":
        request.getfixturevalue("small_disk")
    happens, status = EVENTS[event]
    run = Matrix(recipe, PHASES[phase])
    happens(run)
    expected = PHASES[phase].disk_full if status is None else status
    assert run.process.wait(30) == expected, recipe.err
    recipe.wait_until(lambda: not recipe.alive(), STOP_LIMIT_S if event == "KILL" else 0)
    assert half_written(recipe.results) == []
    assert "this is a bug" not in recipe.err
    summarized = (recipe.results / "meta_env.json").exists()
    assert summarized == (event not in ("KILL", "disk-full") or phase == "validation")
