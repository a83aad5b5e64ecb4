"""vLLM (V1): Prometheus counters on the API port, on unless --disable-log-stats.

One draft is one (request, step) with at least one draft token; accepted counts what the verifier
accepted, before the output is cut at a stop token or at max_tokens. So
AL = 1 + accepted / drafts needs no conversion. A decode step for which n-gram lookup proposed
nothing is not counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from utils.acceptance.engines import Counts, Engine, RequestCounts, Speculation
from utils.acceptance.exposition import Samples, select

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
REQUESTS = "vllm:request_success_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATED_TOKENS = "vllm:generation_tokens_total"

# rejection_sample_method values under which every token is still the target's own choice.
EXACT_REJECTION = {"strict", "probabilistic", "standard", "block"}


def counts(deltas: Samples) -> Counts:
    """Window totals over all engine ranks and labels."""

    def total(name: str) -> int:
        return round(sum(select(deltas, [name]).values()))

    return Counts(
        steps=total(DRAFTS),
        accepted=total(ACCEPTED),
        drafted=total(DRAFT_TOKENS),
        per_position=_per_position(deltas),
        requests=total(REQUESTS),
        prompt_tokens=total(PROMPT_TOKENS),
        generated_tokens=total(GENERATED_TOKENS),
    )


def _per_position(samples: Samples) -> tuple[int, ...]:
    totals: dict[int, float] = {}
    for series, value in select(samples, [ACCEPTED_PER_POSITION]).items():
        position = int(series.label("position") or 0)
        totals[position] = totals.get(position, 0.0) + value
    return tuple(round(totals[position]) for position in sorted(totals))


def draft_length(samples: Samples) -> int | None:
    """N as configured: the per-position series are created for positions 0 to N-1 at start."""
    return len(_per_position(samples)) or None


def request_counts(answer: Mapping[str, Any]) -> RequestCounts | None:
    """`metrics.speculative_decoding` of a response or of its last stream chunk (0.29 and later)."""
    figures = (answer.get("metrics") or {}).get("speculative_decoding")
    if not figures:
        return None
    return RequestCounts(
        steps=figures["num_spec_steps"],
        accepted=figures["num_accepted_draft_tokens"],
        drafted=figures["num_draft_tokens"],
    )


def speculation(argv: Sequence[str]) -> Speculation:
    """Read --speculative-config (or -sc) from a command line."""
    config = _speculative_config(argv)
    if config is None:
        return Speculation()
    rejection = config.get("rejection_sample_method")
    not_real = [f"{key}={value}" for key, value in config.items() if key.startswith("synthetic_")]
    if rejection is not None and rejection not in EXACT_REJECTION:
        not_real.append(f"rejection_sample_method={rejection}")
    return Speculation(
        method=config.get("method"),
        num_speculative_tokens=config.get("num_speculative_tokens"),
        draft_model=config.get("model"),
        draft_sample_method=config.get("draft_sample_method"),
        rejection_sample_method=rejection,
        not_real=tuple(not_real),
    )


def _speculative_config(argv: Sequence[str]) -> dict[str, Any] | None:
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag in ("--speculative-config", "--speculative_config", "-sc"):
            text = value if equals else next(iter(argv[index + 1 : index + 2]), "")
            try:
                config = json.loads(text)
            except ValueError:
                return None
            return config if isinstance(config, dict) else None
    return None


ENGINE = Engine(
    name="vllm",
    how_to_enable=(
        "start it without --disable-log-stats, and with --speculative-config; "
        "behind a router name the engine's own /metrics with --metrics-url"
    ),
    counters=frozenset(
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
    restart_witnesses=frozenset(
        {"process_start_time_seconds", DRAFTS.replace("_total", "_created")}
    ),
    rank_label="engine",
    counts=counts,
    draft_length=draft_length,
    request_counts=request_counts,
    speculation=speculation,
    # The ids make a chunk's token count exact where its text is held back or empty.
    extra_body={"return_token_ids": True},
)
