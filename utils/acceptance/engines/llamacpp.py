"""llama.cpp's llama-server: counters on /metrics, which move when a request ends.

Turn on: --metrics, in a build from 2026-08 on (spec_decode_num_drafts is new). Read: drafts are
verify steps, so AL = 1 + accepted / drafts. The page prints counters with six significant digits:
from a million on a value is rounded and measures nothing; restart the server for each run.
Series of positions appear with the first request that speculated.

Each answer has `timings` with draft_n and draft_n_accepted, but no count of verify steps: all
decode steps stand in for them, those without a draft too, so that figure is a lower bound. It
serves where /metrics is off, and says so. Can't be known: requests finished, cached prompt
tokens. Draft lengths vary (--spec-draft-p-min), so N is only an upper limit.
"""

from __future__ import annotations

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

DRAFTS = "llamacpp:spec_decode_num_drafts_total"
DRAFT_TOKENS = "llamacpp:spec_decode_num_draft_tokens_total"
ACCEPTED = "llamacpp:spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POSITION = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
GENERATED_TOKENS = "llamacpp:tokens_predicted_total"
METHODS = {
    "draft-simple": "draft_model",
    "draft-eagle3": "eagle3",
    "draft-mtp": "mtp",
    "draft-dflash": "dflash",
    "draft-dspark": "dspark",
}


def counts(deltas: Samples) -> Counts:
    return Counts(
        steps=total(deltas, DRAFTS),
        accepted=total(deltas, ACCEPTED),
        drafted=growth(deltas, DRAFT_TOKENS),
        per_position=tuple(by_label(deltas, ACCEPTED_PER_POSITION, "position").values()),
        generated_tokens=growth(deltas, GENERATED_TOKENS),
    )


def request_counts(answer: Mapping[str, Any]) -> RequestCounts | None:
    """`timings` of the last chunk; it has draft figures only if something was drafted."""
    timings = answer.get("timings") or {}
    if "draft_n" not in timings:
        return None
    accepted = timings["draft_n_accepted"]
    return RequestCounts(
        steps=max(timings["predicted_n"] - accepted - 1, 0),
        accepted=accepted,
        drafted=timings["draft_n"],
    )


def speculation(argv: Sequence[str]) -> Speculation:
    kinds = (command_line.option(argv, "--spec-type") or "").split(",")
    forced = ("--spec-synth-len", "--spec-synth-rates")
    values = {name: command_line.option(argv, name) for name in forced}
    ngram = any(kind.startswith("ngram") for kind in kinds)
    several = tuple(kinds) if len(kinds) > 1 else ()
    return Speculation(
        method="ngram" if ngram else METHODS.get(kinds[0]),
        num_speculative_tokens=command_line.number(argv, "--spec-draft-n-max"),
        draft_model=command_line.option(argv, "--spec-draft-model", "-md"),
        not_real=tuple(f"{name}={value}" for name, value in values.items() if value is not None),
        varying=tuple(f"--spec-type {kind}" for kind in several),
    )


COUNTERS = Source(
    label="counters",
    quantity="1 + accepted / drafts, by the engine's counters",
    read=reader({}),
    counts=counts,
    required=frozenset({DRAFTS, DRAFT_TOKENS, ACCEPTED}),
    optional=frozenset({ACCEPTED_PER_POSITION, GENERATED_TOKENS}),
    lazy=frozenset({ACCEPTED_PER_POSITION}),
    busy=frozenset({"llamacpp:requests_processing", "llamacpp:requests_deferred"}),
    exact_below=1e6,
)

ENGINE = Engine(
    name="llamacpp",
    how_to_enable="start llama-server with --metrics and a --spec-type, in a build from 2026-08 on",
    sources=(COUNTERS,),
    prefixes=("llamacpp:",),
    owner="llamacpp",
    own_quantity="1 + accepted / decode steps, steps without a draft included: a lower bound",
    own_all_steps=True,
    request_counts=request_counts,
    speculation=speculation,
)
