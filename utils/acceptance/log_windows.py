"""Acceptance length from windows that an engine wrote into its log, for servers without metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from utils import records
from utils.acceptance import arithmetic, checks, estimate, outputs
from utils.acceptance.checks import Asked, Check, Readback
from utils.acceptance.client import Answer, Pace
from utils.acceptance.engines import Counts
from utils.acceptance.measure import Derived
from utils.acceptance.tally import Tally, always_drafts
from utils.errors import NotMeasured

SOURCE = "decode worker logs"
QUANTITY = "1 + accepted / (drafted / N), summed over the log windows of all decode workers"
# What two printed decimals can hide.
ROUNDING = 0.005 + 1e-9


@dataclass(frozen=True)
class LogWindow:
    """What one line says, and of which time: started and finished are RFC 3339.

    positions: how many acceptance rates it lists, the engine's own N.
    """

    file: str
    worker: str
    started: str
    finished: str
    accepted: int
    drafted: int
    mean_acceptance_length: float
    positions: int


@dataclass(frozen=True)
class LogWindows:
    """All windows of a workload, and the marks that they must lie between."""

    started: str
    finished: str
    windows: tuple[LogWindow, ...]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "windows": [asdict(window) for window in self.windows]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LogWindows:
        rows = tuple(LogWindow(**row) for row in data["windows"])
        return cls(data["started"], data["finished"], rows)


def derive(
    asked: Asked,
    log: LogWindows,
    answers: Sequence[Answer],
    readback: Readback | None = None,
    pace: Pace | None = None,
) -> Derived:
    """Figures and checks, as measure.derive() makes them of two scrapes.

    Raises:
        NotMeasured: a window lies outside the marks, or its numbers don't give a number of drafts.
    """
    counts = pooled(asked, log)
    figures = estimate.estimate(
        accepted=counts.accepted,
        steps=counts.steps,
        drafted=counts.drafted,
        per_position=None,  # rates of three decimals are no counts
        rows=(),
    )
    found = Tally(counts, SOURCE, QUANTITY, counts, None, None)
    return Derived(
        found,
        figures,
        (
            *checks.run(asked, counts, answers, readback or Readback(), pace),
            *arithmetic.run(asked, found, answers),
            *outputs.run(asked, answers),
            *_coverage(asked, counts, answers),
        ),
    )


def pooled(asked: Asked, log: LogWindows) -> Counts:
    """Sums over all windows, so that each weighs as much as it has drafts.

    Raises:
        NotMeasured: as derive().
    """
    if not log.windows:
        raise NotMeasured("no log window lies in the workload's time", "no_lines")
    if not always_drafts(asked.method):
        raise NotMeasured(
            f"method {asked.method or 'unknown'} may draft fewer than N tokens, and the log tells "
            "no steps: measure at the workers' own metrics",
            "steps_unknown",
        )
    started, finished = records.parse_time(log.started), records.parse_time(log.finished)
    for window in log.windows:
        begun, ended = records.parse_time(window.started), records.parse_time(window.finished)
        if not started <= begun <= ended <= finished:
            raise NotMeasured(
                f"{window.file}: the window {window.started}..{window.finished} is not between "
                f"the marks {log.started}..{log.finished}",
                "straddling_window",
            )
    steps = sum(drafts(window, asked.draft_length) for window in log.windows)
    accepted = sum(window.accepted for window in log.windows)
    drafted = sum(window.drafted for window in log.windows)
    return Counts(steps=steps, accepted=accepted, drafted=drafted)


def drafts(window: LogWindow, draft_length: int) -> int:
    """Verify steps of a window: its draft tokens over N, if all else in the line agrees with it.

    Raises:
        NotMeasured: it doesn't, so N isn't the engine's or isn't the same in every step.
    """
    where = f"{window.file}, window up to {window.finished}"
    if window.positions != draft_length:
        raise NotMeasured(
            f"{where}: the worker lists {window.positions} positions, N is {draft_length}",
            "contradictory_draft_length",
        )
    steps, rest = divmod(window.drafted, draft_length)
    stated = window.mean_acceptance_length
    if rest or not steps or not abs(1 + window.accepted / steps - stated) <= ROUNDING:
        raise NotMeasured(
            f"{where}: {window.drafted} drafted, {window.accepted} accepted and a mean acceptance "
            f"length of {stated:.2f} don't agree with {draft_length} draft tokens in every step",
            "contradictory_draft_length",
        )
    return steps


def _coverage(asked: Asked, counts: Counts, answers: Sequence[Answer]) -> Iterator[Check]:
    """That no line is missing: logs count no requests, so tokens must do.

    tokens_add_up has the upper end. A decode worker may take one step without a draft a request,
    the one after the transfer from prefill.
    """
    ok = [answer for answer in answers if answer.ok]
    least = sum(answer.completion_tokens or 0 for answer in ok) - 2 * len(ok)
    total = counts.steps + counts.accepted
    yield Check(
        "logs_cover_the_answers",
        total >= least,
        f"{counts.steps} steps and {counts.accepted} accepted make {total}",
        f"at least {least} by the answers of {len(ok)} requests: else a worker's log or lines of "
        f"it are missing (N={asked.draft_length})",
    )
