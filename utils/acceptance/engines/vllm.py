"""vLLM (V1): Prometheus counters on the API port, on unless --disable-log-stats.

Turn on: nothing to do; the series exist once --speculative-config is given. Read: 0.10 to 0.33
under the same four names; `vllm_` where Ray wraps them; without `_created` and start time where
several API servers share a page; with OpenMetrics' end where the Rust front end serves it.

One draft is one (request, step) with at least one draft token; accepted counts what the verifier
accepted, before the output is cut at a stop token or at max_tokens. So AL = 1 + accepted / drafts
needs no conversion. From 0.29 each answer can carry the same figures
(--per-request-spec-decode-metrics). Can't be known: steps for which n-gram lookup proposed nothing
(they are not counted), and from 0.26 whether a first step was padded with placeholder drafts (a
full prefix-cache hit or a decode node: one step more, nothing accepted).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from utils.acceptance import argv as command_line
from utils.acceptance.engines import (
    Counts,
    Engine,
    RequestCounts,
    Source,
    Speculation,
    growth,
    total,
)
from utils.acceptance.exposition import Samples, by_label, reader

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
REQUESTS = "vllm:request_success_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATED_TOKENS = "vllm:generation_tokens_total"
SPELLINGS = {"ray_vllm_": "vllm:", "ray_vllm:": "vllm:", "vllm_": "vllm:"}

# rejection_sample_method values under which every token is still the target's own choice.
EXACT_REJECTION = {"strict", "probabilistic", "standard", "block"}
CONFIG_FLAGS = ("--speculative-config", "-sc")
SHORTCUTS = {
    "method": "--spec-method",
    "model": "--spec-model",
    "num_speculative_tokens": "--spec-tokens",
}
VARYING = (
    "disable_by_batch_size",
    "speculative_disable_by_batch_size",
    "num_speculative_tokens_per_batch_size",
    "enable_adaptive_verification",
)


def counts(deltas: Samples) -> Counts:
    """Window totals over all engine ranks and labels."""
    return Counts(
        steps=total(deltas, DRAFTS),
        accepted=total(deltas, ACCEPTED),
        drafted=growth(deltas, DRAFT_TOKENS),
        per_position=tuple(by_label(deltas, ACCEPTED_PER_POSITION, "position").values()),
        requests=growth(deltas, REQUESTS),
        prompt_tokens=growth(deltas, PROMPT_TOKENS),
        generated_tokens=growth(deltas, GENERATED_TOKENS),
    )


def draft_length(samples: Samples) -> int | None:
    """N as configured: the per-position series are created for positions 0 to N-1 at start."""
    return len(by_label(samples, ACCEPTED_PER_POSITION, "position")) or None


def request_counts(answer: Mapping[str, Any]) -> RequestCounts | None:
    """`metrics.speculative_decoding` of a response or of its last stream chunk (0.29 and later)."""
    figures = (answer.get("metrics") or {}).get("speculative_decoding")
    if not figures:
        return None
    return RequestCounts(
        steps=figures["num_spec_steps"],
        accepted=figures["num_accepted_draft_tokens"],
        drafted=figures["num_draft_tokens"],
        histogram=figures.get("acceptance_histogram"),
        reported=figures.get("mean_acceptance_length"),
    )


def speculation(argv: Sequence[str]) -> Speculation:
    """Read --speculative-config (or -sc, its dotted keys and shortcuts) from a command line."""
    caching = not command_line.flag(argv, "--no-enable-prefix-caching")
    config = speculative_config(argv)
    if not config:
        return Speculation(prefix_caching=caching)
    rejection = config.get("rejection_sample_method")
    not_real = [f"{key}={value}" for key, value in config.items() if key.startswith("synthetic_")]
    if rejection is not None and rejection not in EXACT_REJECTION:
        not_real.append(f"rejection_sample_method={rejection}")
    method = config.get("method")
    return Speculation(
        method="mtp" if str(method).endswith("_mtp") else method,
        num_speculative_tokens=config.get("num_speculative_tokens"),
        draft_model=config.get("model"),
        draft_sample_method=config.get("draft_sample_method"),
        rejection_sample_method=rejection,
        not_real=tuple(not_real),
        varying=tuple(f"{key}={config[key]}" for key in VARYING if config.get(key)),
        prefix_caching=caching,
    )


def speculative_config(argv: Sequence[str]) -> dict[str, Any]:
    """Its keys, however they were given; empty without one, or where it is no JSON object."""
    config: dict[str, Any] = {}
    for key, flag in SHORTCUTS.items():
        if (value := command_line.option(argv, flag)) is not None:
            config[key] = _value(value)
    if text := command_line.option(argv, *CONFIG_FLAGS):
        whole = _value(text)
        config.update(whole if isinstance(whole, dict) else {})
    for word in argv:
        flag, dot, key = word.partition("=")[0].partition(".")
        if dot and flag.replace("_", "-") in CONFIG_FLAGS:
            config[key] = _value(command_line.option(argv, f"{flag}.{key}") or "")
    return config


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


COUNTERS = Source(
    label="counters",
    quantity="1 + accepted / drafts, by the engine's counters",
    read=reader(SPELLINGS),
    counts=counts,
    draft_length=draft_length,
    required=frozenset(
        {
            DRAFTS,
            DRAFT_TOKENS,
            ACCEPTED,
            ACCEPTED_PER_POSITION,
            REQUESTS,
            PROMPT_TOKENS,
            GENERATED_TOKENS,
        }
    ),
    busy=frozenset({"vllm:num_requests_running", "vllm:num_requests_waiting"}),
    witnesses=frozenset({"process_start_time_seconds", DRAFTS.replace("_total", "_created")}),
    rank=(DRAFTS, "engine"),
)

ENGINE = Engine(
    name="vllm",
    how_to_enable=(
        "start it without --disable-log-stats, and with --speculative-config; "
        "behind a router name the engine's own /metrics with --metrics-url"
    ),
    sources=(COUNTERS,),
    prefixes=("vllm:", "vllm_", "ray_vllm"),
    owner="vllm",
    request_counts=request_counts,
    speculation=speculation,
    # The ids make a chunk's token count exact where its text is held back or empty.
    extra_body={"return_token_ids": True},
)
