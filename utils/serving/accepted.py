"""What a server accepted while it was used: its counters before and after, each time at rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from utils.acceptance import measure, preflight, tally
from utils.acceptance.client import Answer
from utils.acceptance.measure import FLUSH_PATIENCE_S, SETTLE_DEADLINE_S
from utils.acceptance.meter import Meter
from utils.acceptance.preflight import Target
from utils.acceptance.tally import Tally
from utils.acceptance.window import Scrape, local_session


@dataclass(frozen=True)
class Opened:
    """A window that has begun."""

    target: Target
    method: str
    meter: Meter
    before: Scrape


def begin(target: Target, method: str) -> Opened:
    """Wait until the server is idle, and read its counters.

    Raises:
        NotMeasured: it shows none, or is never idle.
    """
    meter = preflight.meter(local_session(), target)
    return Opened(target, method, meter, meter.settled(SETTLE_DEADLINE_S))


def end(opened: Opened, answers: Sequence[Answer]) -> Tally:
    """What was counted since, once all these answers are.

    Raises:
        NotMeasured: the window is broken, or the server never comes to rest.
    """
    enough = measure.all_counted(opened.meter, opened.before, answers)
    after = opened.meter.settled(SETTLE_DEADLINE_S, enough, FLUSH_PATIENCE_S)
    return tally.count(opened.target.engine, opened.method, opened.before, after, answers)
