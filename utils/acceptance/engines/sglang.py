"""SGLang: requests' own figures first, the tokenizer's counters second, never a gauge.

Turn on: --enable-metrics; the figures of a request come with `return_spec_tokens_details` in the
OpenAI routes (0.5.19 and later, `sglext`), with `return_meta_info` (0.5.14) or from /generate
(`meta_info`). Its field names changed four times: NAMES.

By requests: accepted = correct drafts as the verifier counts them, steps = verify calls, so
AL = 1 + accepted / steps as everywhere. By counters (0.5.13 and later) there is no accepted
count: generated tokens hold the one that prefill makes, so accepted + steps = generated -
requests, less what was cut at a stop, up to N tokens a request. The engine's own acceptance
length has the prefill token in it: a head of which nothing is accepted reads 64/63. Its gauges
show the last window of decode batches, or the last before the server went idle.

Can't be known by counters: draft tokens, positions. Before 0.5.13 there is no verify counter:
measure from stream chunks (--metrics none).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utils.acceptance import argv as command_line
from utils.acceptance.engines import (
    Counts,
    Engine,
    Reported,
    RequestCounts,
    Source,
    Speculation,
    growth,
    total,
)
from utils.acceptance.exposition import Samples, reader, select

VERIFY_CALLS = "sglang:spec_verify_calls_total"
GENERATED_TOKENS = "sglang:generation_tokens_total"
PROMPT_TOKENS = "sglang:prompt_tokens_total"
REQUESTS = "sglang:num_requests_total"
RUNNING = "sglang:num_running_reqs"
DRAFT_TOKENS = "sglang:spec_num_draft_tokens"  # the bonus row counts: N + 1
STEPS = "sglang:spec_num_steps"
ACCEPT_LENGTH = "sglang:spec_accept_length"
SPELLINGS = {"sglang_": "sglang:"}

# Each figure under the names that releases gave it, the newest first.
NAMES = {
    "steps": ("spec_verify_ct",),
    "accepted": ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
    "drafted": ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
    "histogram": ("spec_correct_drafts_histogram", "spec_accept_histogram"),
    "reported": ("spec_accept_length",),
}
METHODS = {
    "EAGLE": "eagle",
    "NEXTN": "mtp",
    "EAGLE3": "eagle3",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
    "DSPARK": "dspark",
    "DFLASH": "dflash",
}


def counts(deltas: Samples) -> Counts:
    """Window totals: tokens of all requests but the one each that prefill made."""
    steps = total(deltas, VERIFY_CALLS)
    generated, requests = total(deltas, GENERATED_TOKENS), total(deltas, REQUESTS)
    return Counts(
        steps=steps,
        accepted=generated - requests - steps,
        requests=requests,
        prompt_tokens=growth(deltas, PROMPT_TOKENS),
        generated_tokens=generated,
        delivered_only=True,
    )


def draft_length(samples: Samples) -> int | None:
    """N by the gauges, which are 0 until the first decode batches were logged."""
    tokens = max(select(samples, [DRAFT_TOKENS]).values(), default=0.0)
    return round(tokens) - 1 if tokens > 1 else None


def request_counts(answer: Mapping[str, Any]) -> RequestCounts | None:
    """`sglext.spec_tokens_details` or `meta_info`, of the answer or of its one choice."""
    for part in (answer, *(answer.get("choices") or ())):
        details = (part.get("sglext") or {}).get("spec_tokens_details")
        figures = details or part.get("meta_info")
        if isinstance(figures, Mapping) and (found := _figures(figures)):
            return found
    return None


def _figures(figures: Mapping[str, Any]) -> RequestCounts | None:
    found: dict[str, Any] = {
        key: next((figures[name] for name in names if figures.get(name) is not None), None)
        for key, names in NAMES.items()
    }
    if found["steps"] is None or found["accepted"] is None:
        return None
    return RequestCounts(**{**found, "histogram": found["histogram"] or None})


def info(server: Mapping[str, Any]) -> Speculation:
    """/server_info, which repeats the server's arguments."""
    state = {**next(iter(_states(server)), {}), **server}
    algorithm = state.get("speculative_algorithm")
    caching = state.get("disable_radix_cache")
    if not algorithm:
        return Speculation(prefix_caching=None if caching is None else not caching)
    draft = state.get("speculative_draft_model_path")
    lossy = [
        f"{name}={state[name]}"
        for name in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
        if state.get(name) is not None and float(state[name]) < 1.0
    ]
    return Speculation(
        method="mtp" if algorithm == "EAGLE" and not draft else METHODS.get(algorithm),
        num_speculative_tokens=_length(algorithm, state),
        draft_model=draft,
        not_real=tuple(lossy),
        varying=("speculative_adaptive",) if state.get("speculative_adaptive") else (),
        prefix_caching=None if caching is None else not caching,
        drafts_per_step=_tree_size(algorithm, state),
    )


def _length(algorithm: str, state: Mapping[str, Any]) -> int | None:
    """N: the block of DSpark, the depth of a tree, else all draft rows but the bonus one."""
    if algorithm == "DSPARK" and state.get("speculative_dspark_block_size"):
        return int(state["speculative_dspark_block_size"])
    if _is_tree(algorithm, state):
        return state.get("speculative_num_steps")
    tokens = state.get("speculative_num_draft_tokens")
    return int(tokens) - 1 if tokens else None


def _is_tree(algorithm: str, state: Mapping[str, Any]) -> bool:
    return algorithm != "NGRAM" and (state.get("speculative_eagle_topk") or 1) > 1


def _tree_size(algorithm: str, state: Mapping[str, Any]) -> int | None:
    """Rows that a step verifies but the bonus one, where they are not a chain."""
    tokens = state.get("speculative_num_draft_tokens")
    return int(tokens) - 1 if tokens and _is_tree(algorithm, state) else None


def speculation(argv: Sequence[str]) -> Speculation:
    """The --speculative-* options, which are the names that /server_info uses."""
    names = {
        "speculative_algorithm": str,
        "speculative_draft_model_path": str,
        "speculative_num_steps": int,
        "speculative_eagle_topk": int,
        "speculative_num_draft_tokens": int,
        "speculative_dspark_block_size": int,
        "speculative_accept_threshold_single": float,
        "speculative_accept_threshold_acc": float,
    }
    state: dict[str, Any] = {}
    for name, kind in names.items():
        value = command_line.option(argv, f"--{name}")
        if value is not None:
            state[name] = kind(value)
    state["speculative_adaptive"] = command_line.flag(argv, "--speculative-adaptive")
    state["disable_radix_cache"] = command_line.flag(argv, "--disable-radix-cache")
    return info(state)


def reported(samples: Samples, server: Mapping[str, Any]) -> list[Reported]:
    """The gauge and the lifetime average, which measure other things."""
    found = [
        Reported(
            f"gauge {ACCEPT_LENGTH}",
            value,
            "the last window of decode batches of one rank, bonus token in",
        )
        for value in select(samples, [ACCEPT_LENGTH]).values()
    ]
    for rank, state in enumerate(_states(server)):
        if (value := state.get("avg_spec_accept_length")) is not None:
            name = f"internal_states[{rank}].avg_spec_accept_length"
            found.append(Reported(name, float(value), "server lifetime, last window left out"))
    return found


def _states(server: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One per data-parallel scheduler; older servers gave null for ranks that had none."""
    return [state for state in server.get("internal_states") or () if isinstance(state, Mapping)]


COUNTERS = Source(
    label="counters",
    quantity="(generated tokens - requests) / verify calls: tokens delivered after the prefill's",
    read=reader(SPELLINGS),
    counts=counts,
    draft_length=draft_length,
    required=frozenset({VERIFY_CALLS, GENERATED_TOKENS, REQUESTS, PROMPT_TOKENS}),
    lazy=frozenset({VERIFY_CALLS, GENERATED_TOKENS, REQUESTS, PROMPT_TOKENS}),
    gauges=frozenset({DRAFT_TOKENS, STEPS, ACCEPT_LENGTH}),
    busy=frozenset({RUNNING, "sglang:num_queue_reqs"}),
    rank=(RUNNING, "dp_rank"),
)

ENGINE = Engine(
    name="sglang",
    how_to_enable=(
        "start it with --enable-metrics and a --speculative-algorithm; "
        "behind a router name each server's own /metrics with --metrics-url"
    ),
    sources=(COUNTERS,),
    prefixes=("sglang:", "sglang_"),
    owner="sglang",
    own_first=True,
    own_quantity="1 + correct drafts / verify calls, by the requests' own figures",
    request_counts=request_counts,
    speculation=speculation,
    info_paths=("/server_info", "/get_server_info"),
    info=info,
    reported=reported,
    extra_body={"return_spec_tokens_details": True},
)
