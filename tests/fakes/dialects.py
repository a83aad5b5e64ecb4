"""What each engine's metrics and answers look like, release by release, over one known truth."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TEXT = "text/plain; version=0.0.4"
PROMPT_TOKENS = 20
Page = tuple[str, str]


@dataclass
class Rank:
    """One engine's totals. histogram: verify steps by number of accepted drafts."""

    histogram: list[int]
    requests: int = 0
    prompt: int = 0
    generated: int = 0
    iterations: list[dict[str, Any]] = field(default_factory=list)
    last_iteration: int = 0

    @property
    def steps(self) -> int:
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
        return sum(count * steps for count, steps in enumerate(self.histogram))

    @property
    def positions(self) -> list[int]:
        return [sum(self.histogram[p:]) for p in range(1, len(self.histogram))]

    def iterate(self, **stats: int | None) -> None:
        """One iteration of TensorRT-LLM, told once for each attention rank."""
        self.last_iteration += 1
        names = ("numDraftTokens", "numAcceptedTokens", "numRequestsWithDraftTokens")
        figures = {name: stats.get(name, 0) for name in names}
        row = {"iter": self.last_iteration, "specDecodingStats": figures}
        row["numCompletedRequests"] = stats.get("completed", 0)
        self.iterations += [{**row, "attentionDpRank": rank} for rank in (0, 1)]


@dataclass
class State:
    """What a page is rendered from."""

    model: str
    n: int
    ranks: list[Rank]
    faults: set[str]
    started: float = 1.7e9
    snapshot: tuple[float, str] = (0.0, "")

    @property
    def busy(self) -> int:
        return int("busy" in self.faults)


@dataclass(frozen=True)
class Dialect:
    """One release of one engine. last: fields that its last stream chunk has besides usage."""

    engine: str
    pages: Mapping[str, Callable[[State], Page]]
    last: Callable[[Sequence[int], int], dict[str, Any]] = lambda *_: {}
    ids: bool = False
    info: Mapping[str, Any] | None = None
    version: str | None = None
    owner: str = "somebody"


def _lines(rows: Iterator[tuple[str, Mapping[str, object], object]]) -> str:
    out = []
    for name, labels, value in rows:
        inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
        out.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")
    return "\n".join(out) + "\n"


def vllm_rows(
    state: State, rank: int, witnesses: bool = True, **more: str
) -> Iterator[tuple[str, Mapping[str, object], object]]:
    r, label = state.ranks[rank], {"engine": rank, "model_name": state.model, **more}
    if witnesses:
        yield "process_start_time_seconds", {}, state.started
        yield "vllm:spec_decode_num_drafts_created", label, state.started
    yield "vllm:num_requests_running", label, state.busy
    yield "vllm:num_requests_waiting", label, 0
    for reason, count in (("stop", 0), ("length", r.requests)):
        yield "vllm:request_success_total", {**label, "finished_reason": reason}, count
    yield "vllm:prompt_tokens_total", label, r.prompt
    yield "vllm:generation_tokens_total", label, r.generated
    if "spec_off" in state.faults:
        return
    drafts = "NaN" if "nan" in state.faults else f"{r.steps:e}"
    yield "vllm:spec_decode_num_drafts_total", label, drafts
    yield "vllm:spec_decode_num_draft_tokens_total", label, r.steps * state.n
    yield "vllm:spec_decode_num_accepted_tokens_total", label, r.accepted
    for position, count in enumerate(r.positions):
        extra = "per_pos" in state.faults and position == state.n - 1 and r.requests > 1001
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        yield name, {**label, "position": position}, count + extra


def vllm_page(witnesses: bool = True, prefix: str = "vllm:") -> Callable[[State], Page]:
    def page(state: State) -> Page:
        text = "".join(_lines(vllm_rows(state, k, witnesses)) for k in range(len(state.ranks)))
        return text.replace("vllm:", prefix), TEXT

    return page


def vllm_openmetrics(state: State) -> Page:
    rows = [row for k in range(len(state.ranks)) for row in vllm_rows(state, k, False)]
    text = ""
    for family in dict.fromkeys(name.removesuffix("_total") for name, _, _ in rows):
        mine = [row for row in rows if row[0].removesuffix("_total") == family]
        kind = "counter" if mine[0][0].endswith("_total") else "gauge"
        text += f"# TYPE {family} {kind}\n{_lines(iter(mine))}"
    return text + "# EOF\n", "application/openmetrics-text; version=1.0.0"


def vllm_last(steps: Sequence[int], n: int) -> dict[str, Any]:
    accepted = sum(steps)
    figures = {
        "mean_acceptance_length": 1 + accepted / len(steps) if steps else None,
        "acceptance_histogram": [steps.count(k) for k in range(n + 1)],
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": len(steps) * n,
    }
    return {"metrics": {"speculative_decoding": figures}}


def sglang_rows(
    state: State, rank: int, streaming_label: bool, **more: str
) -> Iterator[tuple[str, Mapping[str, object], object]]:
    label = {"engine_type": "unified", "model_name": state.model, **more}
    scheduler = {**label, "tp_rank": 0, "dp_rank": rank}
    yield "sglang:num_running_reqs", scheduler, state.busy
    yield "sglang:num_queue_reqs", scheduler, 0
    yield "sglang:spec_accept_length", scheduler, 2.9
    yield "sglang:spec_num_draft_tokens", scheduler, state.n + 1
    if rank:  # the tokenizer manager counts for all ranks
        return
    total = Rank([0] * (state.n + 1))
    for one in state.ranks:
        total.histogram = [a + b for a, b in zip(total.histogram, one.histogram, strict=True)]
        total.requests += one.requests
        total.prompt += one.prompt
        total.generated += one.generated
    kinds = {"is_streaming": "true"} if streaming_label else {}
    for name, value in (("prompt", total.prompt), ("generation", total.generated)):
        if streaming_label:  # the warm-up's
            yield f"sglang:{name}_tokens_total", {**label, "is_streaming": "false"}, 8
        yield f"sglang:{name}_tokens_total", {**label, **kinds}, value
    yield "sglang:num_requests_total", label, total.requests
    if "spec_off" not in state.faults:
        yield "sglang:spec_verify_calls_total", label, total.steps


def sglang_page(streaming_label: bool = True, prefix: str = "sglang:") -> Callable[[State], Page]:
    def page(state: State) -> Page:
        ranks = range(len(state.ranks))
        text = "".join(_lines(sglang_rows(state, k, streaming_label)) for k in ranks)
        return text.replace("sglang:", prefix), TEXT

    return page


SGLANG_NAMES = {
    "0.5.6": ("spec_accept_token_num", "spec_draft_token_num", "spec_accept_histogram"),
    "0.5.11": ("spec_accepted_drafts", "spec_proposed_drafts", "spec_accept_histogram"),
    "0.5.23": (
        "spec_num_correct_drafts",
        "spec_num_proposed_drafts",
        "spec_correct_drafts_histogram",
    ),
}


def sglang_figures(release: str, steps: Sequence[int], n: int) -> dict[str, Any]:
    accepted, drafted, histogram = SGLANG_NAMES[release]
    longest = max(steps, default=0)
    return {
        "spec_verify_ct": len(steps),
        "spec_accept_length": (sum(steps) + len(steps) + 1) / max(len(steps), 1),
        accepted: sum(steps),
        drafted: len(steps) * n,
        histogram: [list(steps).count(k) for k in range(longest + 1)],
    }


def sglang_details(steps: Sequence[int], n: int) -> dict[str, Any]:
    return {"sglext": {"spec_tokens_details": sglang_figures("0.5.23", steps, n)}}


def sglang_meta(release: str) -> Callable[[Sequence[int], int], dict[str, Any]]:
    def last(steps: Sequence[int], n: int) -> dict[str, Any]:
        meta = sglang_figures(release, steps, n)
        return {"choices": [{"index": 0, "delta": {}, "meta_info": meta}]}

    return last


def trt_iterations(state: State) -> Page:
    """Read once: whoever asks first gets them."""
    rows = state.ranks[0].iterations
    state.ranks[0].iterations = []
    if "iterations_missed" in state.faults and len(rows) > 40:
        del rows[20:30]
    if "spec_off" in state.faults:
        rows = [{**row, "specDecodingStats": None} for row in rows]
    return json.dumps([] if "iterations_off" in state.faults else rows), "application/json"


def trt_rows(
    state: State, rank: int, **more: str
) -> Iterator[tuple[str, Mapping[str, object], object]]:
    r, label = state.ranks[rank], {"model_name": state.model, **more}
    yield "trtllm_request_success_total", {**label, "finished_reason": "length"}, r.requests
    yield "trtllm_prompt_tokens_total", label, r.prompt
    yield "trtllm_generation_tokens_total", label, r.generated
    yield "trtllm_spec_decode_acceptance_length", label, 3.5
    if "spec_off" in state.faults:
        return
    for position, count in enumerate(r.positions):
        at = {**label, "token_position": position}
        yield "trtllm_spec_decode_drafted_tokens_total", at, r.steps
        yield "trtllm_spec_decode_accepted_tokens_total", at, count


def trt_page(state: State) -> Page:
    return "".join(_lines(trt_rows(state, k)) for k in range(len(state.ranks))), TEXT


def dynamo_pages(rows: Callable[..., Any], spell: tuple[str, str]) -> dict[str, Any]:
    """One page a worker, each twice in it, a prefill worker's series too, and the front end's."""

    def worker(rank: int) -> Callable[[State], Page]:
        def page(state: State) -> Page:
            if rank >= len(state.ranks):
                return "", TEXT
            labels = {"dynamo_namespace": "dynamo", "worker_id": f"w{rank}"}
            text = _lines(rows(state, rank, **labels, dynamo_component="decode")) * 2
            mine = Rank([7] * (state.n + 1), state.ranks[rank].requests)
            prefill = State(state.model, state.n, [mine] * 3, set())
            text += _lines(rows(prefill, rank, **labels, dynamo_component="prefill"))
            return text.replace(*spell), TEXT

        return page

    front_end = 'dynamo_frontend_requests_total{model="m"} 12\nprocess_cpu_seconds_total 3\n'
    return {
        "/metrics": lambda _: (front_end, TEXT),
        **{f"/worker/{rank}/metrics": worker(rank) for rank in range(3)},
    }


def atom_page(state: State) -> Page:
    """A snapshot, computed anew every so often."""
    taken, text = state.snapshot
    if (time.time() - taken > 0.6 and "stale" not in state.faults) or not text:
        taken, rows = time.time(), []
        r = state.ranks[0]
        rows += [("atom:requests_running", {}, state.busy)]
        rows += [("atom:requests_finished_total", {}, r.requests)]
        rows += [("atom:prompt_tokens_total", {}, r.prompt)]
        rows += [("atom:generation_tokens_total", {}, r.generated)]
        rows += [("atom:mtp_draft_tokens_total", {}, r.steps * state.n)]
        rows += [("atom:mtp_accepted_tokens_total", {}, r.accepted)]
        for count, steps in enumerate(r.histogram):
            if steps and "spec_off" not in state.faults:
                rows.append(("atom:mtp_decode_steps_total", {"accepted_tokens": count}, steps))
        rows += [("atom:metrics_last_refresh_timestamp_seconds", {}, taken)]
        text = _lines(iter(rows))
        state.snapshot = (taken, text)
    return text, TEXT


def atom_debug(state: State) -> Page:
    r = state.ranks[0]
    stats = {
        "enabled": "spec_off" not in state.faults,
        "total_draft_tokens": r.steps * state.n,
        "total_accepted_tokens": r.accepted,
        "average_tokens_per_forward": 1 + r.accepted / max(r.steps, 1),
        "distribution": {str(k): v for k, v in enumerate(r.histogram) if v},
    }
    return json.dumps(stats), "application/json"


def llamacpp_page(state: State) -> Page:
    r, far = state.ranks[0], 2_000_000 * ("imprecise" in state.faults)
    rows: list[tuple[str, Mapping[str, object], object]] = [
        ("llamacpp:tokens_predicted_total", {}, f"{r.generated:.6g}"),
        ("llamacpp:requests_processing", {}, state.busy),
        ("llamacpp:requests_deferred", {}, 0),
    ]
    if "spec_off" not in state.faults:
        rows += [
            ("llamacpp:spec_decode_num_drafts_total", {}, f"{r.steps + far:.6g}"),
            ("llamacpp:spec_decode_num_draft_tokens_total", {}, f"{r.steps * state.n + far:.6g}"),
            ("llamacpp:spec_decode_num_accepted_tokens_total", {}, f"{r.accepted + far:.6g}"),
        ]
        for position, count in enumerate(r.positions):
            if count:
                name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
                rows.append((name, {"position": position}, count))
    return _lines(iter(rows)), TEXT


def llamacpp_last(steps: Sequence[int], n: int) -> dict[str, Any]:
    figures = {"draft_n": len(steps) * n, "draft_n_accepted": sum(steps)}
    return {"timings": {**figures, "predicted_n": 1 + len(steps) + sum(steps)}}


_INFO = {"speculative_algorithm": "EAGLE3", "speculative_eagle_topk": 1, "version": "0.5.23"}
_VLLM = {"ids": True, "version": "0.32.0", "owner": "vllm"}


def _sglang_rows(state: State, rank: int, **more: str) -> Iterator[Any]:
    one = State(state.model, state.n, [state.ranks[rank]], state.faults)
    return sglang_rows(one, 0, True, **more)


DIALECTS = {
    "vllm-0.10": Dialect("vllm", {"/metrics": vllm_page()}, **_VLLM),
    "vllm-0.29": Dialect("vllm", {"/metrics": vllm_page()}, vllm_last, **_VLLM),
    "vllm-api-servers": Dialect("vllm", {"/metrics": vllm_page(False)}, **_VLLM),
    "vllm-ray": Dialect("vllm", {"/metrics": vllm_page(False, "vllm_")}, **_VLLM),
    "vllm-rust": Dialect("vllm", {"/metrics": vllm_openmetrics}, **_VLLM),
    "sglang-0.5.13": Dialect("sglang", {"/metrics": sglang_page(False)}),
    "sglang-0.5.18": Dialect("sglang", {"/metrics": sglang_page()}, owner="sglang"),
    "sglang-0.5.23": Dialect("sglang", {"/metrics": sglang_page()}, sglang_details, info=_INFO),
    "sglang-meta-0.5.6": Dialect("sglang", {"/metrics": sglang_page()}, sglang_meta("0.5.6")),
    "sglang-meta-0.5.11": Dialect("sglang", {"/metrics": sglang_page()}, sglang_meta("0.5.11")),
    "sglang-underscore": Dialect("sglang", {"/metrics": sglang_page(True, "sglang_")}),
    "trt-iterations": Dialect("trt", {"/metrics": trt_iterations}),
    "trt-counters": Dialect("trt", {"/prometheus/metrics": trt_page}),
    "dynamo-vllm": Dialect("dynamo-vllm", dynamo_pages(vllm_rows, ("", ""))),
    "dynamo-sglang-0.8": Dialect(
        "dynamo-sglang", dynamo_pages(_sglang_rows, ("sglang:", "sglang_"))
    ),
    "dynamo-trt-0.7": Dialect("dynamo-trt", dynamo_pages(trt_rows, ("trtllm_", "trtllm:"))),
    "atom": Dialect("atom", {"/metrics": atom_page}),
    "atom-debug": Dialect("atom", {"/debug/mtp_stats": atom_debug}),
    "llamacpp": Dialect("llamacpp", {"/metrics": llamacpp_page}, llamacpp_last),
    "openai": Dialect("openai", {}, ids=True),
}
