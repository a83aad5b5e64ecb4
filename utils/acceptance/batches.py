"""The load in batches: after each the server is idle, and somebody may say that it is enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from utils.acceptance import client
from utils.acceptance.client import Answer, Load, Pace, Prompt
from utils.acceptance.engines import Engine


@dataclass(frozen=True)
class Batches:
    """ends: numbers of prompts after which to ask. enough: whether all answers so far will do."""

    ends: Sequence[int]
    enough: Callable[[Sequence[Answer]], bool]


def run(
    load: Load,
    prompts: Sequence[Prompt],
    engine: Engine,
    pace: Pace,
    batches: Batches,
    ended: Callable[[], None] | None = None,
) -> list[Answer]:
    """As client.run(), but only as many batches as it takes; pauses are no part of the pace."""
    answers: list[Answer] = []
    began, start = time.perf_counter(), 0
    for end in batches.ends:
        elapsed = time.perf_counter() - began
        rest = replace(load, total_deadline_s=max(load.total_deadline_s - elapsed, 0.0))
        mine = Pace(load.concurrency)
        batch = client.run(rest, prompts[start:end], engine, mine, ended)
        for answer in batch:
            answer.started_s += elapsed
        answers += batch
        _add(pace, mine)
        if batches.enough(answers):
            break
        start = end
    return answers


def _add(pace: Pace, batch: Pace) -> None:
    """The worst of every lag; the share of a core over all batches."""
    duration = pace.duration_s + batch.duration_s
    busy = pace.cpu_share * pace.duration_s + batch.cpu_share * batch.duration_s
    pace.cpu_share = busy / max(duration, 1e-9)
    pace.duration_s = duration
    pace.reached_concurrency = max(pace.reached_concurrency, batch.reached_concurrency)
    pace.start_lag_s = max(pace.start_lag_s, batch.start_lag_s)
    pace.loop_lag_s = max(pace.loop_lag_s, batch.loop_lag_s)
