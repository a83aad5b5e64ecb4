"""Steps that leave a marker when they ended, so that an interrupted set-up can be run again."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from utils.embedded_engine.layout import Target
from utils.errors import UsageError
from utils.progress import Progress, last_line, tail

COMPLETE = "COMPLETE"
WATCH_S = 0.5

Facts = dict[str, str]


class CommandFailed(UsageError):
    """A command of the set-up ended badly; its output is in the log."""


@dataclass(frozen=True)
class Work:
    """A target that this process alone may change."""

    target: Target
    lock_fd: int

    def say(self, text: str) -> None:
        print(f"{self.target.name}: {text}", flush=True)

    def step(self, name: str, what: str, action: Callable[[], Facts]) -> Facts:
        """Do a step unless its marker says that it ended; the marker keeps what it found out."""
        if not is_done(self.target, name):
            self.say(what)
            started = time.monotonic()
            mark(self.target, name, action())
            self.say(f"  done in {time.monotonic() - started:.0f} s")
        return read_marker(self.target, name)

    def run(self, argv: list[str]) -> None:
        self.target.folder.mkdir(parents=True, exist_ok=True)
        with self.target.log.open("a", encoding="utf-8") as log:
            print(f"\n$ {shlex.join(argv)}", file=log, flush=True)
            # The child inherits the lock: should it outlive a killed set-up, the next one waits.
            status = self._watched(
                subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=clean_environment(),
                    pass_fds=[self.lock_fd],
                )
            )
        if status != 0:
            raise CommandFailed(
                f"{self.target.name}: {Path(argv[0]).name} ended with status {status}: "
                f"see {self.target.log}, then run `make setup` again; its last lines:\n"
                f"{tail(self.target.log.read_text(encoding='utf-8', errors='replace'))}"
            )

    def _watched(self, process: subprocess.Popen[bytes]) -> int:
        """Its exit status; an exception on our side ends it too."""
        try:
            with Progress(f"{self.target.name} set-up") as shown:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return process.wait(WATCH_S)
                    shown.show(last_line(self.target.log))
        finally:
            process.kill()
            process.wait()


def clean_environment() -> dict[str, str]:
    """The caller's, without what would mix foreign packages into a virtual environment."""
    foreign = {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "VIRTUAL_ENV"}
    foreign.add("PYTHONDONTWRITEBYTECODE")  # without byte code, every start of an engine is slow
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    return {
        **kept,
        "PYTHONNOUSERSITE": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "HF_HUB_OFFLINE": "1",
    }


def require_space(target: Target, needed_gb: int) -> None:
    free_gb = shutil.disk_usage(target.folder).free / 1e9
    if free_gb < needed_gb:
        raise UsageError(
            f"{target.name}: {target.folder} needs {needed_gb} GB of free disk space and has "
            f"{free_gb:.1f} GB: free some, or point SPECGATE_HOME at a larger disk"
        )


def marker(target: Target, name: str) -> Path:
    return target.folder / f".done-{name}" if name != COMPLETE else target.folder / COMPLETE


def read_marker(target: Target, name: str) -> Facts:
    try:
        facts: Facts = json.loads(marker(target, name).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return facts


def is_done(target: Target, name: str) -> bool:
    return read_marker(target, name).get("fingerprint") == target.fingerprint


def mark(target: Target, name: str, facts: Facts) -> None:
    finished_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = {**facts, "finished_at": finished_at, "fingerprint": target.fingerprint}
    write_atomically(marker(target, name), json.dumps(record, indent=2, sort_keys=True) + "\n")


def write_atomically(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


@contextlib.contextmanager
def exclusive(target: Target) -> Iterator[Work]:
    target.folder.parent.mkdir(parents=True, exist_ok=True)
    with target.folder.with_name(f"{target.folder.name}.lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                f"{target.name}: another set-up is at work in {target.folder}; waiting for it",
                flush=True,
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield Work(target, lock.fileno())
