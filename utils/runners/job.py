"""Run a launch's command to its end, whatever ends it, and say whose fault a failure was.

The step writes its exit status into the run's folder, inside the container. A status of 0 to 3 is
the recipe's own and is handed on. Without one the infrastructure failed: status 3, with a reason.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from utils import errors, records
from utils.records import Json
from utils.runners.facility import Docker, Facility, Reason, Slurm, Unanswered
from utils.runners.output import Copier
from utils.serving import supervise

STEP_STOP_S = 5.5  # what a recipe takes to stop
FORCED_STOP_S = 1.0
CLEAR_S = 8.0  # until nothing is left; GitHub kills 10 s after its first signal
FINAL_S = 45.0  # Slurm's usual 30 s from TERM to KILL, and some more to note it
VERDICTS = (errors.PASS, errors.FAIL, errors.USAGE, errors.NOT_MEASURED)
POLL_S = 0.05
PHASES = {
    "": Reason("allocation_failed", "nothing was allocated"),
    "image": Reason("image_import_failed", "the image could not be had"),
    "starting": Reason("step_not_started", "the step never ran"),
    "doctor": Reason("node_unfit", "the node wasn't found fit for the recipe: see the lines above"),
    "running": Reason("step_lost", "the step was gone before it could say its status"),
}


@dataclass
class Launch:
    """One command under its facility; `stop` is the first signal that came, `ended` when it came or
    the command ended (monotonic seconds)."""

    run_dir: Path
    result_dir: Path
    facility: Facility
    stop: int | None = None
    ended: float = 0.0
    notes: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str]) -> None:
        """Returns when the command has ended, or was ended."""
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._remember)
        command = supervise.command_line(argv, grace_s=FORCED_STOP_S)
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        with Copier(child, self.result_dir / "launch.log"):
            while child.poll() is None and self.stop is None:
                time.sleep(POLL_S)
            self.ended = time.monotonic()
            if self.stop is not None:
                self._end(child)
            child.wait()

    def _remember(self, number: int, _frame: object) -> None:
        if self.stop is None:
            self.stop = number

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """The step first, so that a recipe can say what it had; then the command by force."""
        self.attempt(self.facility.cancel)
        deadline = self.ended + STEP_STOP_S
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if child.poll() is None:
            child.terminate()

    def attempt(self, question: Callable[[], str | None]) -> str:
        """What the facility answers; when it doesn't, empty, and noted."""
        try:
            return question() or ""
        except Unanswered as error:
            self.notes.append(str(error))
            return ""

    def clear(self) -> None:
        """Make sure that nothing is left, and say it when something is."""
        deadline = self.ended + CLEAR_S
        left = self.attempt(self.facility.left)
        while left and time.monotonic() < deadline:
            self.attempt(self.facility.cancel)
            time.sleep(4 * POLL_S)
            left = self.attempt(self.facility.left)
        if left:
            self.notes.append(f"still there: {' '.join(left.split())}")

    def step_status(self) -> int | None:
        """What the step wrote, None when it wrote none."""
        file = self.run_dir / "status"
        text = file.read_text().strip() if file.exists() else ""
        return int(text) if text.isdigit() else None

    def phase(self) -> str:
        file = self.run_dir / "phase"
        return file.read_text().strip() if file.exists() else ""

    def blame(self, account: str) -> Reason | None:
        """Why there is no verdict of the recipe's own, None when there is one."""
        status = self.step_status()
        if self.stop is not None:
            return Reason("interrupted", f"by {signal.Signals(self.stop).name}")
        if status in VERDICTS:
            return None
        if known := self.facility.reason(account):
            return known
        if status is not None:
            return Reason("step_killed", f"the recipe ended with status {status}")
        return PHASES[self.phase()]


def conclude(launch: Launch, started: str) -> int:
    """Evidence, then the verdict: launch.json, one line, the exit status."""
    launch.clear()
    decided = launch.stop is not None or launch.step_status() in VERDICTS
    patience_s = 0.0 if decided else FINAL_S
    account = launch.attempt(lambda: launch.facility.describe(patience_s))
    if account:
        records.write_text(launch.result_dir / "launch_job.txt", f"{account}\n")
    reason, step = launch.blame(account), launch.step_status()
    status = errors.NOT_MEASURED if reason or step is None else step
    if launch.stop is not None:
        status = 128 + launch.stop
    for note in launch.notes:
        print(f"launch: {note}", file=sys.stderr)
    if reason:
        print(f"launch: infrastructure, {reason.name}: {reason.text}", file=sys.stderr)
    record: Json = {
        "schema": "launch/1",
        "started": started,
        "finished": records.utc_now(),
        "status": status,
        "step_status": step,
        "reason": reason.name if reason else None,
        "text": reason.text if reason else None,
        "notes": launch.notes,
    }
    records.write_json(launch.result_dir / "launch.json", record, "launch")
    return status


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(prog="utils.runners.job", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True, help="removed in the end")
    parser.add_argument("--result-dir", type=Path, required=True)
    parser.add_argument("--slurm", metavar="NAME", help="the job's name; else it is docker")
    options = parser.parse_args(given[:cut])
    if not given[cut + 1 :]:
        parser.error("name the command after --")
    run_dir = options.run_dir
    facility = Slurm(options.slurm, run_dir) if options.slurm else Docker(run_dir)
    launch = Launch(run_dir, options.result_dir, facility)
    started = records.utc_now()
    print(f"results: {options.result_dir}", flush=True)
    try:
        launch.run(given[cut + 1 :])
        return conclude(launch, started)
    finally:
        shutil.rmtree(run_dir)


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
