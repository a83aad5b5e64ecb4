"""Decode eval for a plain training loop: a context manager and one call a step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from utils.decode_eval import history, keeping, preflight
from utils.decode_eval.cadence import Cadence
from utils.decode_eval.config import DecodeEvalConfig
from utils.decode_eval.contained import contained, log
from utils.decode_eval.runner import DecodeEvalRunner, Export, State
from utils.decode_eval.snapshot import export_draft_snapshot
from utils.records import Json

Metrics = dict[str, float]
LogMetrics = Callable[[Metrics, int], None]
SNAPSHOT_STEP = "train/tau_real_step"


class Session:
    """One training's evals. A session without a runner (rank above 0, feature off) does nothing."""

    def __init__(
        self,
        runner: DecodeEvalRunner | None = None,
        log_metrics: LogMetrics | None = None,
        cadence: Cadence | None = None,
    ) -> None:
        self.runner = runner
        self._cadence = cadence
        self._log_metrics = log_metrics
        self._to_log: list[Json] = []
        self._last: tuple[int, Any] | None = None
        self._logged_at = -1
        self._finished = False

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        elif self.runner:
            self.runner.shutdown()

    def boundary(self, global_step: int) -> bool:
        """Whether an eval may be due at this step: the same on every rank, whatever runs.

        There a sharded model's ranks all call gather_state_dict(), and rank 0 hands it to step().
        """
        return self._cadence is not None and self._cadence.boundary(global_step) == global_step

    def step(
        self,
        global_step: int,
        model: Any,
        *,
        tau_sim: float | None = None,
        state_dict: State | None = None,
    ) -> list[Json]:
        """Call after every optimizer step, and once with 0 before the first; never raises.

        Takes no time but for the export when an eval is due. tau_sim: simulated length of this
        model on the same prompts, to compare. Returns the results that have come in, one a call,
        so that a tracker's step holds one point.
        """
        if self.runner is None:
            return []
        self._last = (global_step, model)
        self._to_log += self.runner.collect()
        self.runner.maybe_launch(global_step, model, tau_sim=tau_sim, state_dict=state_dict)
        arrived, self._to_log = self._to_log[:1], self._to_log[1:]
        self._report(arrived, global_step)
        return arrived

    @contained(int)
    def evals_since_best(self) -> int:
        """How many evals in a row brought no new best: a reason to stop early.

        Only rank 0 knows: where several train, tell the others before they all stop.
        """
        return 0 if self.runner is None else history.since_best(history.read(self.runner.file))

    def measure(
        self,
        global_step: int,
        model: Any,
        *,
        tau_sim: float | None = None,
        state_dict: State | None = None,
    ) -> bool:
        """An eval off the cadence, such as on a save; whether it was taken."""
        if self.runner is None or self.runner.knows(global_step):
            return False
        return self.runner.launch_model(global_step, model, tau_sim, state_dict)

    @contained(list[Json])
    def finish(self, wait_s: float | None = None, *, state_dict: State | None = None) -> list[Json]:
        """Measure the last step too, wait up to wait_s (finish_wait_s), end what is left.

        The end of the `with` block does it, unless it was done before; state_dict as for step().
        """
        if self.runner is None or self._finished:
            return []
        self._finished = True
        runner, config = self.runner, self.runner.config
        end = time.monotonic() + (config.finish_wait_s if wait_s is None else wait_s)
        try:
            if config.at_end and self._last and not runner.knows(self._last[0]):
                runner.wait(end - time.monotonic())
                runner.launch_model(*self._last, state_dict=state_dict)
            runner.wait(end - time.monotonic())
        finally:
            runner.shutdown()
        keeping.sum_up(config, runner.file, runner.attempt)
        arrived = [*self._to_log, *runner.collect()]
        self._to_log = []
        last = self._last[0] if self._last else max((r["step"] for r in arrived), default=0)
        self._report(arrived, last)
        return arrived

    def _report(self, rows: list[Json], step: int) -> None:
        """One point a tracker's step: a second one would take the first one's place."""
        for row in rows:
            if self._log_metrics and row["outcome"] == history.MEASURED:
                self._logged_at = max(step, self._logged_at + 1)
                _send(self._log_metrics, metrics(row), self._logged_at)


@contained(lambda: None)
def _send(log_metrics: LogMetrics, values: Metrics, step: int) -> None:
    log_metrics(values, step)


def metrics(row: Json) -> Metrics:
    """What a tracker gets: the snapshot's step as a value, for a tracker's own can't go back."""
    values: Metrics = {
        "train/tau_real": row["acceptance_length"],
        SNAPSHOT_STEP: row["step"],
    }
    if row["lower"] is not None:
        values.update({"train/tau_real_lower": row["lower"], "train/tau_real_upper": row["upper"]})
    if row["tau_sim"] is not None:
        values["train/tau_sim"] = row["tau_sim"]
        values["train/tau_gap"] = row["tau_sim"] - row["acceptance_length"]
    if len(row["sets"]) > 1:
        for one in row["sets"]:
            values[f"train/tau_real/{one['name']}"] = one["acceptance_length"]
    return values


def session(
    config: DecodeEvalConfig | None,
    *,
    log_metrics: LogMetrics | None = None,
    export: Export = export_draft_snapshot,
    is_main: bool | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Session:
    """A session for `with`; config None: off. is_main: by default whether RANK is 0 or unset.

    Raises:
        UsageError: before training starts, what a preflight (strict) or the prompts show.
    """
    main = environ.get("RANK", "0") == "0" if is_main is None else is_main
    if config is None:
        return Session()
    cadence = Cadence.of(config, ())
    if not main:
        return Session(cadence=cadence)
    for problem in preflight.enforce(config):
        log.warning("decode_eval: preflight: %s", problem)
    return Session(DecodeEvalRunner(config, export), log_metrics, cadence)
