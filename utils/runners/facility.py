"""What runs a launch's step, Slurm or docker: how to stop it, and to ask what became of it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from utils.errors import HarnessError

CANCEL_S = 2.0
QUESTION_S = 5.0


class Unanswered(HarnessError):
    """A command of the cluster failed, or didn't answer in time."""


def ask(argv: Sequence[str], seconds: float) -> str:
    """What a command prints.

    Raises:
        Unanswered: it fails, can't be started, or takes longer.
    """
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unanswered(f"{argv[0]} did not answer within {seconds:g} s") from error
    except OSError as error:
        raise Unanswered(f"{argv[0]}: {error.strerror}") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise Unanswered(f"{argv[0]}: {said[:300]}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Reason:
    """Why a step has no verdict of its own: a name, and what was seen."""

    name: str
    text: str


class Facility(Protocol):
    """One launch; a method that gets no answer within seconds raises Unanswered."""

    def cancel(self) -> None:
        """Ask for the step's end: TERM first, KILL after the facility's own grace."""

    def left(self) -> str:
        """What of the launch still exists; empty when nothing does."""

    def describe(self, patience_s: float) -> str:
        """The facility's own account of the launch, final if it becomes so in time."""

    def reason(self, account: str) -> Reason | None:
        """What the account blames, None when it blames nothing."""


@dataclass(frozen=True)
class Slurm:
    """A job by its name, which is this launch's alone."""

    name: str
    run_dir: Path

    def cancel(self) -> None:
        ask(["scancel", *self._ours()], CANCEL_S)

    def left(self) -> str:
        return ask(["squeue", "--noheader", *self._ours(), "--format=job %i %T"], QUESTION_S)

    def _ours(self) -> tuple[str, str]:
        return f"--name={self.name}", f"--user={os.getuid()}"

    def describe(self, patience_s: float) -> str:
        job_id = self.run_dir / "job_id"
        if not job_id.exists():
            raise Unanswered("there was no allocation")
        deadline = time.monotonic() + patience_s
        while True:
            account = ask(["scontrol", "show", "job", job_id.read_text().strip()], QUESTION_S)
            if "JobState=COMPLETING" not in account or time.monotonic() > deadline:
                return account
            time.sleep(0.5)

    def reason(self, account: str) -> Reason | None:
        facts = dict(re.findall(r"(\w+)=(\S*)", account))
        state = facts.get("JobState", "")
        name = {
            "TIMEOUT": "time_limit",
            "CANCELLED": "cancelled",
            "NODE_FAIL": "node_failed",
            "BOOT_FAIL": "node_failed",
            "PREEMPTED": "preempted",
            "OUT_OF_MEMORY": "out_of_memory",
        }.get(state)
        return Reason(name, f"Slurm says {state} of job {facts.get('JobId')}") if name else None


@dataclass(frozen=True)
class Docker:
    """A container by the id that docker wrote when it made it."""

    run_dir: Path
    stop_s: int = 6

    def _id(self) -> str:
        file = self.run_dir / "container_id"
        return file.read_text().strip() if file.exists() else ""

    def cancel(self) -> None:
        if self._id():
            ask(["docker", "stop", f"--time={self.stop_s}", self._id()], self.stop_s + CANCEL_S)

    def left(self) -> str:
        if not self._id():
            return ""
        words = ("--all", "--no-trunc", f"--filter=id={self._id()}", "--format=container {{.ID}}")
        if listed := ask(["docker", "ps", *words], QUESTION_S):
            ask(["docker", "rm", "--force", self._id()], QUESTION_S)
        return listed and ask(["docker", "ps", *words], QUESTION_S)

    def describe(self, patience_s: float) -> str:
        del patience_s  # gone at once
        if not self._id():
            raise Unanswered("there was no container")
        return f"container {self._id()}"

    def reason(self, account: str) -> Reason | None:
        del account  # docker removes the container with what it knew of it
        return None
