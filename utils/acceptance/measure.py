"""One AL measurement: preflight, window, workload; then figures and checks from what was seen.

observe() talks to the server and keeps what it saw; derive() is pure and works on a stored
record as well, which is how a validator recomputes a verdict without believing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from utils.acceptance import (
    arithmetic,
    batches,
    checks,
    client,
    estimate,
    outputs,
    preflight,
    tally,
    window,
)
from utils.acceptance.batches import Batches
from utils.acceptance.checks import Asked, Check, Readback
from utils.acceptance.client import Answer, Load, Pace, Prompt
from utils.acceptance.engines import Counts, Engine
from utils.acceptance.estimate import Estimate
from utils.acceptance.exposition import Samples
from utils.acceptance.load import planned
from utils.acceptance.meter import Enough, Meter
from utils.acceptance.preflight import Said, Target
from utils.acceptance.tally import Tally, request_rows
from utils.acceptance.window import Scrape
from utils.errors import NotMeasured
from utils.progress import Progress

__all__ = ["Derived", "Observation", "Target", "all_counted", "derive", "observe", "request_rows"]

SETTLE_DEADLINE_S = 60.0
# Stat loggers that lag behind the last answer are waited for this long, then the checks speak.
FLUSH_PATIENCE_S = 10.0


@dataclass
class Observation:
    """What was seen, filled in as the measurement goes; a failed one keeps what it has."""

    said: Said = field(default_factory=Said)
    metrics_urls: Sequence[str] = ()
    before: Scrape | None = None
    after: Scrape | None = None
    answers: list[Answer] = field(default_factory=list)
    pace: Pace | None = None


@dataclass(frozen=True)
class Derived:
    """Figures and checks that follow from an observation."""

    tally: Tally
    estimate: Estimate
    checks: tuple[Check, ...]

    @property
    def counts(self) -> Counts:
        return self.tally.counts

    @property
    def broken(self) -> list[Check]:
        return [check for check in self.checks if check.broken]


def observe(
    target: Target,
    asked: Asked,
    load: Load,
    prompts: Sequence[Prompt],
    seen: Observation,
    sequence: Batches | None = None,
) -> None:
    """Measure a live server; fills `seen` on the way.

    sequence: batches that the prompts are sent in, of which some may not be needed.

    Raises:
        NotMeasured: the server isn't the one asked for, or the window is invalid.
    """
    session = window.local_session()
    preflight.ask(session, target, seen.said)
    preflight.one_generation(load, target.engine, seen.said.models)
    meter = preflight.meter(session, target)
    seen.metrics_urls = meter.urls
    before = meter.settled(SETTLE_DEADLINE_S)
    preflight.agree(meter.source, before, seen.said, asked)
    seen.before, seen.pace = before, Pace(load.concurrency)
    with meter.polling(), Progress("AL", len(planned(prompts))) as shown:
        run = client.run if sequence is None else partial(batches.run, batches=sequence)
        seen.answers = run(load, prompts, target.engine, seen.pace, ended=shown.step)
    seen.after = meter.settled(
        SETTLE_DEADLINE_S, all_counted(meter, before, seen.answers), FLUSH_PATIENCE_S
    )


def all_counted(meter: Meter, before: Scrape, answers: Sequence[Answer]) -> Enough:
    """Whether the server has counted as many requests as we had answers."""
    ok = sum(answer.ok for answer in answers)

    def enough(samples: Samples) -> bool:
        try:
            grown = window.deltas(before, Scrape("", samples), meter.source)
            counted = meter.source.counts(grown).requests
        except NotMeasured:
            return True  # no waiting mends a broken window; derive() will say what broke
        return counted is None or counted >= ok

    return enough


def derive(
    engine: Engine,
    asked: Asked,
    before: Scrape,
    after: Scrape,
    answers: Sequence[Answer],
    readback: Readback | None = None,
    pace: Pace | None = None,
) -> Derived:
    """Figures and checks of one window.

    Raises:
        NotMeasured: the scrapes don't make a window, or no step was counted in it.
    """
    found = tally.count(engine, asked.method, before, after, answers)
    counts = found.counts
    figures = estimate.estimate(
        accepted=counts.accepted,
        steps=counts.steps,
        drafted=counts.drafted,
        per_position=counts.per_position,
        rows=request_rows(engine, asked.method, answers),
    )
    source = tally.source_of(engine, before)
    said = replace(
        readback or Readback(),
        one_process=window.proven(before, after, source),
        draft_length=source.draft_length(before.samples),
    )
    return Derived(
        found,
        figures,
        (
            *checks.run(asked, counts, answers, said, pace),
            *arithmetic.run(asked, found, answers, said.drafts_per_step),
            *outputs.run(asked, answers),
        ),
    )
