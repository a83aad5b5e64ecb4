"""The load in batches; the client itself is stood in for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from utils.acceptance import batches
from utils.acceptance.batches import Batches
from utils.acceptance.client import Answer, Load, Pace, Prompt
from utils.acceptance.engines import Engine, vllm

PROMPTS = [Prompt(f"q{i}", ()) for i in range(10)]
LOAD = Load("http://x", "m", {}, {}, 10, 2, total_deadline_s=100.0)


class Client:
    """Takes `seconds` a batch, by a clock of its own."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.now, self.seconds = 0.0, seconds
        self.sent: list[list[str]] = []
        self.deadlines: list[float] = []
        self.lags = iter([0.1, 0.4, 0.2])

    def run(
        self,
        load: Load,
        prompts: Sequence[Prompt],
        engine: Engine,
        pace: Pace,
        ended: Callable[[], None],
    ) -> list[Answer]:
        for _ in prompts:
            ended()
        self.sent.append([prompt.id for prompt in prompts])
        self.deadlines.append(load.total_deadline_s)
        self.now += self.seconds
        lag = next(self.lags)
        pace.reached_concurrency, pace.start_lag_s, pace.loop_lag_s = 2, lag, lag
        pace.duration_s, pace.cpu_share = self.seconds, lag
        return [Answer(prompt.id, started_s=0.5) for prompt in prompts]


def run(monkeypatch: pytest.MonkeyPatch, client: Client, stop_at: int) -> tuple[list[Answer], Pace]:
    monkeypatch.setattr(batches.client, "run", client.run)
    monkeypatch.setattr(batches.time, "perf_counter", lambda: client.now)
    pace = Pace(LOAD.concurrency)
    sequence = Batches([4, 7, 10], lambda answers: len(answers) >= stop_at)
    ended: list[None] = []
    answers = batches.run(LOAD, PROMPTS, vllm.ENGINE, pace, sequence, lambda: ended.append(None))
    assert len(ended) == len(answers)
    return answers, pace


def test_all_batches_together_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    answers, pace = run(monkeypatch, client, stop_at=99)
    assert [len(batch) for batch in client.sent] == [4, 3, 3]
    assert [answer.id for answer in answers] == [prompt.id for prompt in PROMPTS]
    assert [answer.started_s for answer in answers[::3]] == [0.5, 0.5, 1.5, 2.5]
    assert (pace.reached_concurrency, pace.start_lag_s, pace.loop_lag_s) == (2, 0.4, 0.4)
    assert pace.duration_s == 3.0
    assert pace.cpu_share == pytest.approx((0.1 + 0.4 + 0.2) / 3)


def test_what_is_not_needed_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    answers, _ = run(monkeypatch, client, stop_at=7)
    assert [len(batch) for batch in client.sent] == [4, 3]
    assert len(answers) == 7


def test_the_deadline_is_that_of_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(seconds=60.0)
    run(monkeypatch, client, stop_at=99)
    assert client.deadlines == [100.0, 40.0, 0.0]
