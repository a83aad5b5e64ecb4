"""One `run:` block as a GitHub runner runs it, and as a runner ends it when a job is cancelled."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from utils.ci.workflow import SHELL

# What a runner does to a cancelled step: to its topmost process alone, with these pauses (seconds).
LADDER = ((signal.SIGINT, 7.5), (signal.SIGTERM, 2.5), (signal.SIGKILL, 0.0))
_PR_SET_PDEATHSIG = 1


class Shell:
    """Runs blocks one after another; INT or TERM to us cancels as a click in GitHub does."""

    def __init__(self) -> None:
        self.cancelled = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take INT and TERM as a cancel while inside."""
        signals = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(one, self._cancel) for one in signals]
        try:
            yield
        finally:
            for one, handler in zip(signals, before, strict=True):
                signal.signal(one, handler)

    def _cancel(self, *_: int | FrameType | None) -> None:
        self.cancelled = True

    def run(
        self, script: Path, environment: Mapping[str, str], cwd: Path, deadline: float
    ) -> tuple[int, bool]:
        """(exit status, whether it had to be ended); deadline by time.monotonic(), seconds.

        A cancel before this block started leaves it alone: it is one that cleans up.
        """
        before = self.cancelled
        process = subprocess.Popen(
            [*SHELL, str(script)],
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us, we hand it on
            preexec_fn=_end_with_parent,
        )
        while (status := _wait(process, 0.2)) is None:
            if (self.cancelled and not before) or time.monotonic() > deadline:
                return self._end(process), True
        return status, False

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> int:
        for number, pause_s in LADDER:
            process.send_signal(number)
            if (status := _wait(process, pause_s)) is not None:
                return status
        return process.wait()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _end_with_parent() -> None:
    """A killed twin must not leave its step behind: the step gets the TERM that we can't send."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
