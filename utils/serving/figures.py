"""What a serving benchmark's answers come to: counts, latencies, throughput, goodput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from utils.acceptance.client import Answer
from utils.records import Json
from utils.serving.slo import LATENCIES

PERCENTILES = (50, 90, 99)
NOTHING = "an answer without a token"


def summary(answers: Sequence[Answer], duration_s: float, slo: Mapping[str, float]) -> Json:
    """Counts over all requests, latencies over the successful ones only; seconds, tokens by usage.

    tpot_s is a request's time after its first chunk by its tokens but the first; chunk_gap_s the
    time between two chunks, which may carry several tokens each.
    """
    good = [answer for answer in answers if measured(answer)]
    rows = [latencies(answer) for answer in good]
    tokens = sum(answer.completion_tokens or 0 for answer in good)
    served = sum(meets(row, slo) for row in rows)
    return {
        "requested": len(answers),
        "completed": len(good),
        "failed": len(answers) - len(good),
        "first_error": next((a.error or NOTHING for a in answers if not measured(a)), None),
        "duration_s": duration_s,
        "total_input_tokens": sum(answer.prompt_tokens or 0 for answer in good),
        "total_output_tokens": tokens,
        "output_tokens_per_s": tokens / duration_s,
        "requests_per_s": len(good) / duration_s,
        **{name: spread([row[name] for row in rows if name in row]) for name in LATENCIES},
        "chunk_gap_s": spread([gap for answer in good for gap in answer.gaps_s]),
        "slo": dict(slo) or None,
        "good_requests": served if slo else None,
        "goodput_requests_per_s": served / duration_s if slo else None,
    }


def measured(answer: Answer) -> bool:
    timed = answer.ttft_s is not None and answer.e2e_s is not None
    return answer.ok and timed and bool(answer.completion_tokens)


def latencies(answer: Answer) -> dict[str, float]:
    """Of one measured answer; tpot_s only where there is a second token."""
    assert answer.ttft_s is not None and answer.e2e_s is not None and answer.completion_tokens
    found = {"ttft_s": answer.ttft_s, "e2e_s": answer.e2e_s}
    if answer.completion_tokens > 1:
        found["tpot_s"] = (answer.e2e_s - answer.ttft_s) / (answer.completion_tokens - 1)
    return found


def meets(row: Mapping[str, float], slo: Mapping[str, float]) -> bool:
    """Whether every latency that the request has is within its limit."""
    return all(row[name] <= limit for name, limit in slo.items() if name in row)


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Mean and nearest-rank percentiles; None without values."""
    if not values:
        return None
    ranked = sorted(values)
    ranks = {f"p{p}": ranked[max(0, -(-p * len(ranked) // 100) - 1)] for p in PERCENTILES}
    return {"mean": sum(ranked) / len(ranked), **ranks}
