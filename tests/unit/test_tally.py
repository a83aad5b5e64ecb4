"""Which instrument an AL rests on, and what the others say."""

from __future__ import annotations

from typing import Any

import pytest

from utils.acceptance import tally
from utils.acceptance.engines import RequestCounts, load, sglang, vllm
from utils.acceptance.exposition import Samples, Series
from utils.acceptance.stream import Answer
from utils.acceptance.window import Scrape
from utils.errors import NotMeasured

NOTHING = Scrape("", {})
SGLANG, VLLM = load("sglang"), load("vllm")
OWN = RequestCounts(steps=3, accepted=4, drafted=9, histogram=[1, 1, 0, 1])


def answer(spec: RequestCounts | None, **changes: Any) -> Answer:
    fields = {"ok": True, "completion_tokens": 8, "chunks": 4, **changes}
    return Answer("q", prompt_tokens=1, spec=spec, **fields)


def page(value: float) -> Scrape:
    names = (sglang.VERIFY_CALLS, sglang.GENERATED_TOKENS, sglang.PROMPT_TOKENS, sglang.REQUESTS)
    counters: Samples = {
        Series("u", name, ()): value * factor
        for name, factor in zip(names, (6, 16, 2, 2), strict=True)
    }
    return Scrape("", counters)


def counted(*answers: Answer) -> tally.Tally:
    return tally.count(SGLANG, "eagle3", page(0), page(1), answers)


def test_requests_own_figures_come_first_with_the_servers_traffic() -> None:
    found = counted(answer(OWN), answer(OWN))
    assert found.source == tally.BY_REQUESTS
    assert (found.counts.steps, found.counts.accepted, found.counts.drafted) == (6, 8, 18)
    assert found.counts.per_position == (4, 2, 2)
    assert (found.counts.requests, found.counts.generated_tokens) == (2, 16)
    assert found.by_counters
    assert (found.by_counters.steps, found.by_counters.accepted) == (6, 16 - 2 - 6)


@pytest.mark.parametrize(
    "second",
    [
        answer(None),
        # SGLang's zeros stand for figures that it doesn't have: a second token needs a step.
        answer(RequestCounts(0, 0, 0)),
    ],
)
def test_figures_of_some_requests_only_are_no_figures(second: Answer) -> None:
    found = counted(answer(OWN), second)
    assert found.source == "counters"
    assert found.by_requests is None


def test_a_request_of_one_token_took_no_step() -> None:
    assert counted(answer(OWN), answer(RequestCounts(0, 0, 0), completion_tokens=1)).by_requests


def test_streams_measure_where_nothing_else_does() -> None:
    found = tally.count(VLLM, "eagle3", NOTHING, NOTHING, [answer(None), answer(None, chunks=1)])
    assert found.source == tally.BY_STREAM
    assert (found.counts.steps, found.counts.accepted) == (3, 4)
    for method in ("ngram", "suffix", None):
        with pytest.raises(NotMeasured, match="always drafts"):
            tally.count(VLLM, method, NOTHING, NOTHING, [answer(None)])


def test_rows_come_from_the_requests_or_from_their_streams() -> None:
    assert tally.request_rows(VLLM, "ngram", [answer(OWN)]) == [(4, 3)]
    assert tally.request_rows(VLLM, "mtp", [answer(None), answer(OWN)]) == [(4, 3)] * 2
    assert tally.request_rows(VLLM, "ngram", [answer(None)]) == []
    assert tally.request_rows(VLLM, "mtp", [answer(None, ok=False)]) == []


def test_a_scrape_of_another_engine_is_named() -> None:
    other = Scrape("", {Series("u", vllm.DRAFTS, ()): 1.0})
    with pytest.raises(NotMeasured, match="none of the counters of sglang"):
        tally.count(SGLANG, "mtp", other, other, [answer(None)])


def test_exact_rows_are_the_requests_own() -> None:
    answers = [Answer(f"q{i}", ok=True, spec=RequestCounts(5, i, 15)) for i in range(3)]
    assert tally.exact_rows(VLLM, answers) == [(0, 5), (1, 5), (2, 5)]
    assert tally.exact_rows(load("llamacpp"), answers) is None  # their steps are all steps
    silent = [*answers, Answer("q3", ok=True)]
    assert tally.exact_rows(VLLM, silent) is None
    failed = [*answers, Answer("q3", ok=False, spec=RequestCounts(5, 0, 15))]
    assert tally.exact_rows(VLLM, failed) is None
