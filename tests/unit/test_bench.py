from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from utils.acceptance.client import Answer
from utils.serving import bench


def answer(number: int, **fields: object) -> Answer:
    made = Answer(f"serving/{number}", ok=True, prompt_tokens=100, completion_tokens=11)
    made.ttft_s, made.e2e_s = 0.1, 0.1 + 0.1 * number
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_latencies_are_of_successes_only_and_failures_are_counted() -> None:
    answers = [answer(n) for n in range(1, 10)]
    answers.append(answer(10, ok=False, error="HTTP 500", e2e_s=600.0))
    found = bench.summary(answers, 2.0)
    assert (found["requested"], found["completed"], found["failed"]) == (10, 9, 1)
    assert found["first_error"] == "HTTP 500"
    assert found["total_output_tokens"] == 99
    assert found["output_tokens_per_s"] == 49.5
    assert found["e2e_s"]["p99"] == pytest.approx(1.0)
    assert found["tpot_s"]["p50"] == pytest.approx(0.05)


def test_nothing_completed_has_no_latency() -> None:
    found = bench.summary([answer(1, ok=False, error="no connection")], 1.0)
    assert (found["completed"], found["ttft_s"], found["e2e_s"]) == (0, None, None)


@pytest.mark.parametrize(("count", "ranks"), [(1, (1, 1, 1)), (100, (50, 90, 99))])
def test_nearest_rank_percentiles(count: int, ranks: tuple[int, ...]) -> None:
    found = bench.percentiles([float(n) for n in range(1, count + 1)])
    assert found is not None
    assert tuple(found.values()) == ranks


def test_prompts_have_the_asked_length_and_are_all_different(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "_count", lambda session, args, text: 10 + len(text.split()))
    args = bench._parser().parse_args(
        [
            *("--base-url", "http://h", "--model", "m", "--model-prefix", "smollm2"),
            *("--isl", "64", "--osl", "8", "--concurrency", "2", "--num-prompts", "5"),
            *("--output", str(tmp_path / "o.json")),
        ]
    )
    texts = [p.messages[0]["content"] for p in bench.build_prompts(args, ["a b c", "d e"])]
    assert [10 + len(text.split()) for text in texts] == [64] * 5
    assert len(set(texts)) == 5


def test_prompts_of_long_words_have_the_asked_length_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut between words they would lack a tenth of it."""
    monkeypatch.setattr(bench, "_count", lambda session, args, text: 10 + len(text) // 4)
    args = argparse.Namespace(isl=40, num_prompts=3, base_url="http://h", model="m")
    words = ["incomprehensibilities of\n\n the", "antidisestablishmentarianism"]
    texts = [str(p.messages[0]["content"]) for p in bench.build_prompts(args, words)]
    assert [10 + len(text) // 4 for text in texts] == [40] * 3
