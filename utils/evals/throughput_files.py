"""Serving results, ours and InferenceX's: that they hold together, and every request was served."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from utils import records
from utils.errors import NotMeasured
from utils.records import Json
from utils.verdicts import Outcome, Verdict

TASK = "serving"
CHECK = "requests_completed"
# InferenceX's aggregated file: seconds per statistic, no counts of requests or tokens.
AGGREGATED = ("tput_per_gpu", "conc")
STATISTIC = re.compile(r"(mean|median|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el)")
SAME_RATE = 0.01
# From a free slot to the next request. A client that can't keep up waits seconds there, unseen by
# its latencies.
MAX_START_LAG_S = 1.0


@dataclass(frozen=True, slots=True)
class Serving:
    """A serving result, whoever wrote it. counts: our file's own; None where there are none.

    latencies: quantity → statistic ("mean", "50", "99") → seconds. peak, mean: tokens a second.
    said: what it tells of its run, empty where it tells nothing.
    """

    name: str
    cell: tuple[int | None, int | None, int | None]
    counts: Json | None
    latencies: Mapping[str, Mapping[str, float]]
    peak: float | None
    mean: float
    said: Mapping[str, Any]


def is_throughput_file(data: Any) -> bool:
    return isinstance(data, dict) and (
        data.get("task") == TASK or all(name in data for name in AGGREGATED)
    )


def read(name: str, data: Json) -> Serving:
    """What was read from a file of that name.

    Raises:
        NotMeasured: ours that breaks its schema, or InferenceX's with something else for a number.
    """
    if data.get("task") != TASK:
        return _aggregated(name, data)
    if problem := records.schema_problem(data, "serving"):
        raise NotMeasured(f"{problem}; run the serving benchmark again", "wrong_shape")
    quantities = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s"}
    return Serving(
        name=name,
        cell=(data["isl"], data["osl"], data["concurrency"]),
        counts=data,
        latencies={
            quantity: {stat.lstrip("p"): value for stat, value in (data[key] or {}).items()}
            for quantity, key in quantities.items()
        },
        peak=data.get("peak_output_tokens_per_s"),
        mean=data["output_tokens_per_s"],
        said={
            "started": data["started"],
            "run_id": data["run_id"],
            "prefix": data["model_prefix"],
            "model": data["model"],
        },
    )


def _aggregated(name: str, data: Json) -> Serving:
    latencies: dict[str, dict[str, float]] = {}
    for key, value in data.items():
        if not (match := STATISTIC.fullmatch(key)):
            continue
        if type(value) not in (int, float):
            raise NotMeasured(f"{key} is {value!r}, not a number: fix its writer", "wrong_shape")
        statistic, quantity = match.groups()
        statistic = {"median": "50"}.get(statistic, statistic.removeprefix("p"))
        latencies.setdefault(quantity.removesuffix("l"), {})[statistic] = value
    isl, osl, conc = (_number(data.get(key)) for key in ("isl", "osl", "conc"))
    tokens = data["tput_per_gpu"]
    if type(tokens) not in (int, float):
        raise NotMeasured(f"tput_per_gpu is {tokens!r}, not a number", "wrong_shape")
    prefix = data.get("infmax_model_prefix")
    said = {} if prefix is None else {"prefix": prefix}
    return Serving(name, (isl, osl, conc), None, latencies, None, tokens, said)


def _number(value: Any) -> int | None:
    """InferenceX writes lengths as numbers or as text, or, in older files, not at all."""
    return records.whole(str(value))


def cell_name(cell: tuple[int | None, ...]) -> str:
    return "serving isl={} osl={} conc={}".format(*("?" if v is None else v for v in cell))


def judge(found: Serving, cell: str, limits: Mapping[str, float]) -> Verdict:
    """That the requests were served as asked, and the figures can be true; not how fast."""
    counts = found.counts
    fault = next(_faults(found, limits), None)
    reason, detail = fault or ("", _summary(found))
    asked = float(counts["requested"]) if counts else None
    least = asked * (1 - limits["failed_requests"]) if asked is not None else None
    return Verdict(
        Outcome.NOT_MEASURED if fault else Outcome.PASS,
        cell,
        CHECK if counts else "tput_per_gpu",
        measured=float(counts["completed"]) if counts else found.mean,
        lower=least,
        upper=asked,
        source=f"requests asked for, {limits['failed_requests']:.0%} may fail" if counts else "",
        reason=reason,
        detail=detail,
        evidence=(found.name,),
    )


def _summary(found: Serving) -> str:
    if not found.counts:
        return "figures agree; InferenceX writes down no failed requests and no lengths"
    data = found.counts
    mean_in, mean_out = (
        data[f"total_{side}_tokens"] / data["completed"] for side in ("input", "output")
    )
    return ", ".join(
        (
            f"input {mean_in:.1f} of {data['isl']} tokens, output {mean_out:.1f} of {data['osl']}",
            f"{data['output_tokens_per_s']:.1f} output tokens a second",
            *_beside(data),
        )
    )


def _beside(data: Json) -> Iterator[str]:
    """What today's records also say, and older ones don't."""
    if data.get("goodput_requests_per_s") is not None:
        yield f"goodput {data['goodput_requests_per_s']:.2f} requests a second"
    if acceptance := data.get("acceptance"):
        yield f"AL {acceptance['acceptance_length']:.4f} meanwhile"
    if problem := data.get("acceptance_problem"):
        yield f"no AL: {problem}"
    if gpu := data.get("gpu"):
        joules = gpu.get("energy_per_output_token_j")
        yield f"{joules:.3f} J a token" if joules is not None else f"GPU power {gpu['state']}"
    if data.get("client", "specgate") != "specgate":
        yield f"by {data['client']}"


def _faults(found: Serving, limits: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Reason and detail of everything that is wrong, in the order in which to look at it."""
    if found.counts:
        yield from _requests(found.counts, limits)
        yield from _tokens(found.counts, limits)
        yield from _client(found.counts)
        if strangers := found.counts.get("gpu", {}).get("strangers"):
            yield "strangers", f"{'; '.join(strangers)}: end it, and run the benchmark again"
    elif not found.mean > 0:
        yield "no_tokens", f"tput_per_gpu is {found.mean}: nothing was generated; see the log"
    yield from _latencies(found.latencies)
    if found.peak is not None and not found.peak >= found.mean:
        text = f"peak {found.peak:.4g} tokens/s is below the mean {found.mean:.4g}"
        yield "impossible", f"{text}: the client's clock or counting is broken"


def _requests(data: Json, limits: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    asked, done, failed = data["requested"], data["completed"], data["failed"]
    why = data["first_error"] or "no error was written down"
    if done + failed != asked:
        text = f"{done} completed and {failed} failed of {asked}: the client lost count"
        yield "requests_vanished", f"{text} (first error: {why}); run the benchmark again"
    elif done == 0 or not failed <= limits["failed_requests"] * asked:
        yield "requests_failed", f"{failed} of {asked} failed: {why}; see server.log"


def _tokens(data: Json, limits: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    done, tokens = data["completed"], data["total_output_tokens"]
    if not tokens > 0:
        yield "no_tokens", f"{done} requests came to {tokens} output tokens; see server.log"
        return
    mean_in, mean_out = data["total_input_tokens"] / done, tokens / done
    allowed = limits["input_length"]
    if not abs(mean_in - data["isl"]) <= allowed * data["isl"]:
        text = f"prompts had {mean_in:.1f} tokens on average, {data['isl']} were asked for"
        yield "input_length", f"{text}, ±{allowed:.0%}: another tokenizer, or ISL is too short"
    if not mean_out <= data["osl"]:
        text = f"answers had {mean_out:.1f} tokens on average, at most {data['osl']} were asked for"
        yield "output_length", f"{text}: the server ignores max_tokens, or counts chunks wrongly"
    if not data["duration_s"] > 0:
        yield "no_duration", f"{tokens} tokens in {data['duration_s']} s: run the benchmark again"
        return
    rate = tokens / data["duration_s"]
    if not abs(rate - data["output_tokens_per_s"]) <= SAME_RATE * rate:
        text = f"output_tokens_per_s is written as {data['output_tokens_per_s']:.4g}"
        yield "contradicts_itself", f"{text}, tokens by duration come to {rate:.4g}; edited?"


def _client(data: Json) -> Iterator[tuple[str, str]]:
    """A client at its own limit measures itself; what it can't tell of itself is null."""
    pace = data.get("client_pace")
    if pace is None:  # an older file
        return
    from utils.acceptance.checks import MAX_CPU_SHARE, MAX_LOOP_LAG_S  # not needed by most files

    for name, most in (
        ("start_lag_s", MAX_START_LAG_S),
        ("loop_lag_s", MAX_LOOP_LAG_S),
        ("cpu_share", MAX_CPU_SHARE),
    ):
        if pace[name] is not None and not pace[name] <= most:
            text = f"{name} of the client is {pace[name]:.3g}, at most {most:g} is sound"
            yield "client_saturated", f"{text}: give it a free core, or lower CONC"


def _latencies(latencies: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, str]]:
    broken = "the client's clock or statistics are broken"
    for quantity, values in latencies.items():
        ranks = sorted((float(rank), value) for rank, value in values.items() if rank != "mean")
        for (low, smaller), (high, larger) in pairwise(ranks):
            if not smaller <= larger:
                text = f"{quantity} p{low:g} {smaller:.4g} s is above p{high:g} {larger:.4g} s"
                yield "impossible", f"{text}: {broken}"
        if any(not value >= 0 for value in values.values()):
            yield "impossible", f"{quantity} is negative: {broken}"
    ends = latencies.get("e2e", {})
    for rank, first in latencies.get("ttft", {}).items():
        if rank in ends and not first <= ends[rank]:
            text = f"ttft {first:.4g} s is above e2e {ends[rank]:.4g} s (statistic {rank})"
            yield "impossible", f"{text}: {broken}"
