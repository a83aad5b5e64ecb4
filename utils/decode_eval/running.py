"""An eval under way as the trainer sees it: launched by this process or adopted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from utils.decode_eval import jobs, serving
from utils.decode_eval.jobs import Job
from utils.decode_eval.lease import Lease, Process, since_boot
from utils.errors import NotMeasured
from utils.records import Json
from utils.serving import supervise

WORKER = Path(__file__).with_name("worker.py")
# The worker keeps the deadline itself; the trainer does only where the worker can't.
MARGIN_S = 2.0
KILL_MARGIN_S = 3.0


@dataclass
class Running:
    """holder: the supervisor of the worker's tree. told: when it was asked to stop, since boot."""

    job: Job
    holder: Process
    since_boot_s: float
    child: subprocess.Popen[bytes] | None = None
    told: float | None = None

    @classmethod
    def launch(cls, job: Job) -> Running:
        """Start a worker in a session of its own.

        Raises:
            OSError: it can't be started.
        """
        words = supervise.command_line(
            [sys.executable, "-u", str(WORKER), str(job.folder)],
            grace_s=job.config.stop_grace_s,
            detached=True,  # the worker watches the trainer itself, whichever thread started it
        )
        with (job.folder / jobs.LOG).open("wb") as log:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=serving.scrubbed(os.environ, job.config),
                cwd=job.folder,
                start_new_session=True,
            )
        return cls(job, Process.of(child.pid), since_boot(), child)

    @classmethod
    def adopt(cls, lease: Lease, job: Job) -> Running:
        """One that an earlier start of training left running."""
        return cls(job, lease.holder, lease.since_boot_s)

    def over(self) -> bool:
        """Whether it has ended; past its deadline it is told to, and later made to. Never waits."""
        if self._ended():
            return True
        now, config = since_boot(), self.job.config
        if self.told is None:
            if now - self.since_boot_s > config.timeout_s + config.stop_grace_s + MARGIN_S:
                self.told = now
                self.holder.send(signal.SIGTERM)
        elif now - self.told > config.stop_grace_s + KILL_MARGIN_S:
            self.holder.kill_tree()
        return False

    def stop(self) -> None:
        """TERM, then KILL, to the whole tree, and wait for it."""
        self.holder.send(signal.SIGTERM)
        end = time.monotonic() + self.job.config.stop_grace_s + KILL_MARGIN_S
        while not self._ended() and time.monotonic() < end + KILL_MARGIN_S:
            if time.monotonic() > end:
                self.holder.kill_tree()
            time.sleep(0.05)

    def _ended(self) -> bool:
        return self.child.poll() is not None if self.child else not self.holder.alive()

    def conclude(self) -> Json:
        """What it came to: its result, or why there is none."""
        folder = self.job.folder
        try:
            row = jobs.result(folder)
            if row["attempt"] != self.job.attempt:
                raise NotMeasured(f"{folder} has the result of another attempt", "other_result")
            return row
        except NotMeasured as error:
            reason, text = self._why(error)
        tail = jobs.log_tail(folder)
        return {**jobs.of_job(self.job), "reason": reason, "error": text, "log_tail": tail}

    def _why(self, error: NotMeasured) -> tuple[str, str]:
        if self.told is not None:
            limit = self.job.config.timeout_s
            return "timed_out", f"still there after its deadline of {limit:g} s, and stopped"
        if (self.job.folder / jobs.RESULT).exists():
            known = error.reason == "other_result"
            return error.reason if known else "unreadable_result", str(error)
        status = self.child.returncode if self.child else "an unknown status"
        return "worker_died", f"the worker ended with {status} and left no result"
