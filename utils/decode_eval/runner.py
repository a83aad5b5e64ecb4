"""The trainer's side: what is due is snapshot, measured by a detached worker, and collected.

Rank 0 alone makes a runner. Nothing here waits for an eval, enters a collective or raises into the
loop: whatever goes wrong becomes a line in the log and in history.jsonl.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from utils.decode_eval import history, jobs, keeping, prompts
from utils.decode_eval.cadence import Cadence
from utils.decode_eval.config import DecodeEvalConfig
from utils.decode_eval.contained import contained, log, one_line
from utils.decode_eval.jobs import Job
from utils.decode_eval.running import Running
from utils.decode_eval.snapshot import Snapshot, export_draft_snapshot
from utils.errors import HarnessError, NotMeasured
from utils.records import Json

POLL_S = 0.1
# (model, folder of the step, and state_dict where the caller gathered it) → snapshot
Export = Callable[..., Snapshot]
State = Mapping[str, Any]


class DecodeEvalRunner:
    """Cadence, launch, collection and end of the evals of one output_dir.

    attempt: number of this start of training. Raises UsageError when it is made, before training
    starts, for prompts that can't be frozen; NotMeasured for a history that can't be read.
    """

    def __init__(self, config: DecodeEvalConfig, export: Export = export_draft_snapshot) -> None:
        self.config = config
        self.file = config.folder / history.FILE
        self.prompts = prompts.freeze(config)
        self._export = export
        self._arrived: list[Json] = []
        self._unwritten: list[Json] = []
        self._failures: list[str] = []
        self._said_tripped = self._said_full = False
        self._latest: Job | None = None
        rows = history.read(self.file)
        found = keeping.recover(config, rows)
        self.attempt, self._running, self._again = found.attempt, found.running, found.again
        for row in found.news:
            self._record(row, keep=row["reason"] == keeping.ABANDONED)
        if self._running:
            log.info("decode_eval: step %d is still being measured", self._running.job.step)
        pending = [*self._again, *([self._running.job] if self._running else [])]
        self._known = {row["step"] for row in history.measured([*rows, *found.news])}
        self._known.update(job.step for job in pending)
        self._cadence = Cadence.of(config, self._known)

    @property
    def busy(self) -> bool:
        return bool(self._running or self._again or self._latest)

    def due(self, step: int) -> bool:
        """Whether a boundary of the cadence has come that was not dealt with yet."""
        return self._cadence.due(step)

    @contained(bool)
    def maybe_launch(
        self,
        global_step: int,
        draft_model: Any,
        *,
        tau_sim: float | None = None,
        state_dict: State | None = None,
    ) -> bool:
        """Snapshot and launch if one is due and none runs; takes no longer than the export."""
        if not self.due(global_step):
            return False
        self._cadence.take(global_step)
        return self.launch_model(global_step, draft_model, tau_sim, state_dict)

    def launch_model(
        self,
        step: int,
        draft_model: Any,
        tau_sim: float | None = None,
        state_dict: State | None = None,
    ) -> bool:
        """Measure a model as it is now, on the cadence or off it."""
        given = {} if state_dict is None else {"state_dict": state_dict}
        export = functools.partial(self._export, draft_model, **given)
        return self.launch(step, export, tau_sim)

    @contained(bool)
    def launch(
        self, step: int, export: Callable[[Path], Snapshot], tau_sim: float | None = None
    ) -> bool:
        """Measure a step, on the cadence or off it, unless one runs or too many have failed."""
        self._known.add(step)
        self._advance()
        if self._tripped():
            return self._skip(step, "circuit_open", "too many equal failures before it")
        if self.busy and self.config.on_busy == "skip":
            self._known.discard(step)
            return self._skip(step, "busy", "the eval before it still runs")
        folder = jobs.folder(self.config.folder, step)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            job = Job.new(self.config, step, self.attempt, export(folder), tau_sim)
            job.write()
        except Exception as error:  # noqa: BLE001 # a user's model, a user's disk
            self._record_failure(self._blank(step), "export_failed", one_line(error))
            return False
        if self._latest:
            jobs.remove_weights(self._latest.folder)
            self._skip(self._latest.step, "superseded", f"step {step} took its place")
        self._latest = job
        self._advance()
        return True

    @contained(list[Json])
    def collect(self) -> list[Json]:
        """Results that have come since the last look, failures too; never waits."""
        self._advance()
        arrived, self._arrived = self._arrived, []
        return arrived

    def rearm(self) -> None:
        """Launch again after too many failures."""
        self._failures.clear()
        self._said_tripped = False

    def knows(self, step: int) -> bool:
        """Whether this step's own snapshot was measured, is about to be, or can't be."""
        return step in self._known

    @contained(bool)
    def wait(self, seconds: float) -> bool:
        """Whether every eval under way came to an end within that time."""
        end = time.monotonic() + seconds
        while True:
            self._advance()
            if not self.busy or time.monotonic() >= end:
                return not self.busy
            time.sleep(POLL_S)

    @contained(lambda: None)
    def shutdown(self) -> None:
        """End what runs, its whole tree, and say what was cut off; bounded by the stop grace.

        With on_trainer_exit: finish, what runs is left to finish, for the next start to collect.
        """
        self._advance()
        cut = [*self._again, *([self._latest] if self._latest else [])]
        if self._running and self.config.on_trainer_exit == "finish":
            log.info("decode_eval: step %d goes on without training", self._running.job.step)
        elif self._running:
            cut.insert(0, self._running.job)
            self._running.stop()
        self._running, self._again, self._latest = None, [], None
        for job in cut:
            text = "training ended first; the next start, or `python3 -m utils.decode_eval run`, "
            text += f"measures its weights, which are kept in {job.snapshot.folder}"
            self._record_failure(jobs.of_job(job), keeping.CUT_OFF, text, keep=True)

    def _advance(self) -> None:
        """Conclude what has ended, start what waits, write what could not be written."""
        if self._running and self._running.over():
            running, self._running = self._running, None
            self._record(running.conclude())
        while not self._running and (job := self._next()):
            try:
                self._running = Running.launch(job)
            except (OSError, HarnessError) as error:
                self._record_failure(jobs.of_job(job), "launch_failed", one_line(error))
        self._flush()

    def _next(self) -> Job | None:
        """What waits: evals to repeat first, then the latest snapshot."""
        if self._again:
            return self._again.pop(0)
        job, self._latest = self._latest, None
        return job

    def _tripped(self) -> bool:
        most = self.config.max_failures
        last = self._failures[-most:]
        tripped = len(last) == most and len(set(last)) == 1
        if tripped and not self._said_tripped:
            self._said_tripped = True
            log.error(
                "decode_eval: %d evals in a row failed with %s; no more are started until "
                "rearm() or the next start of training",
                *(most, last[0]),
            )
        return tripped

    def _blank(self, step: int) -> Json:
        return jobs.blank(self.config, step, self.attempt)

    def _skip(self, step: int, reason: str, text: str) -> bool:
        log.info("decode_eval: step %d is skipped: %s", step, text)
        row = {**self._blank(step), "outcome": "skipped", "reason": reason, "error": text}
        self._unwritten.append(row)
        self._flush()
        return False

    def _record_failure(self, row: Json, reason: str, text: str, *, keep: bool = False) -> None:
        self._record({**row, "reason": reason, "error": text}, keep=keep)

    def _record(self, row: Json, *, keep: bool = False) -> None:
        """One result: into the log, the history and what collect() returns next.

        keep: its weights, for it came to nothing through no fault of its own.
        """
        keeping.say(self.config, row)
        if row["outcome"] == history.MEASURED:
            self._failures.clear()
        elif not keep:
            self._failures.append(row["reason"])
        self._arrived.append(row)
        self._unwritten.append(row)
        self._flush()
        if not keep:
            with contextlib.suppress(NotMeasured):  # a history that broke keeps every weight
                rows = [*history.read(self.file), *self._unwritten]
                keeping.tidy(self.config, rows, row["step"])

    def _flush(self) -> None:
        """Write what waits for it; on a full disk it waits for the next time."""
        if not self._unwritten:
            return
        try:
            history.append(self.file, self._unwritten)
        except (OSError, HarnessError) as error:
            if not self._said_full:
                log.warning("decode_eval: the history waits to be written: %s", error)
            self._said_full = True
            return
        self._unwritten.clear()
        self._said_full = False
