"""TensorRT-LLM (`trtllm-serve`): iteration statistics first, counters second, never a gauge.

Turn on: `enable_iter_perf_stats: true` in the YAML of --config for /metrics, a JSON list that can
be read once only: each reading drains the queue, a second reader steals from the first, and
beyond `iter_stats_max_iterations` the oldest go. So the queue is drained at the start, read often
by one reader, and the numbers of the iterations must have no gap. Pooled, accepted and drafting
requests give AL = (accepted + requests) / requests; the engine's `acceptanceLength` is one
iteration's. With attention data parallelism rows of other ranks repeat those of rank 0.

Second: `return_perf_metrics: true` for /prometheus/metrics, whose `trtllm_spec_decode_*_tokens`
count per token position as requests finish. There is no step counter: a step is what was drafted
at the first position. Can't be known by iterations: tokens of the requests, positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utils import records
from utils.acceptance import argv as command_line
from utils.acceptance.engines import Counts, Engine, Reported, Source, Speculation, growth, total
from utils.acceptance.exposition import Samples, Series, by_label, reader, select
from utils.errors import NotMeasured

PREFIX = "trtllm:iteration_"
ITERATIONS = f"{PREFIX}count_total"
MISSED = f"{PREFIX}missed_total"
LAST = f"{PREFIX}last"
STEPS = f"{PREFIX}requests_with_draft_tokens_total"
DRAFTED_SUM = f"{PREFIX}draft_tokens_total"
ACCEPTED_SUM = f"{PREFIX}accepted_tokens_total"
COMPLETED = f"{PREFIX}completed_requests_total"
DRAFTED = "trtllm:spec_decode_drafted_tokens_total"
ACCEPTED = "trtllm:spec_decode_accepted_tokens_total"
REQUESTS = "trtllm:request_success_total"
PROMPT_TOKENS = "trtllm:prompt_tokens_total"
GENERATED_TOKENS = "trtllm:generation_tokens_total"
ACCEPTANCE_LENGTH = "trtllm:spec_decode_acceptance_length"
SPELLINGS = {"trtllm_": "trtllm:"}
METHODS = {
    "mtp": "mtp",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "ngram": "ngram",
    "drafttarget": "draft_model",
    "dflash": "dflash",
}
HOW = (
    "set enable_iter_perf_stats: true (and iter_stats_max_iterations: -1) in the YAML of --config, "
    "or return_perf_metrics: true for /prometheus/metrics"
)


def read_iterations(text: str, endpoint: str, _type: str, before: Samples) -> Samples:
    """One more page of the read-once list, added to the totals of the pages before it.

    Raises:
        NotMeasured: not a JSON list of objects.
    """
    try:
        rows = records.parse_json(text)
    except ValueError as error:
        raise NotMeasured(
            f"{endpoint} is not a JSON list of iterations ({error}): {HOW}"
        ) from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise NotMeasured(f"{endpoint} answered {text[:60]!r}, not a list of iterations: {HOW}")
    totals = {series.name: value for series, value in before.items()}
    for row in rows:
        if not row.get("attentionDpRank"):
            _count(row, totals)
    return {Series(endpoint, name, ()): value for name, value in totals.items()}


def _count(row: Mapping[str, Any], totals: dict[str, float]) -> None:
    def add(name: str, value: float) -> None:
        totals[name] = totals.get(name, 0.0) + value

    number = row.get("iter")
    add(ITERATIONS, 1)
    if number is not None:
        last = totals.get(LAST, number - 1)
        if number <= last:
            raise NotMeasured(f"iteration {number} after {last:g}: the server restarted", "restart")
        add(MISSED, number - last - 1)
        totals[LAST] = number
    if (completed := row.get("numCompletedRequests")) is not None:
        add(COMPLETED, completed)
    figures = row.get("specDecodingStats")
    if figures is None:
        return
    drafting = figures["numDraftTokens"] > 0
    add(STEPS, figures["numRequestsWithDraftTokens"] if drafting else 0)
    add(DRAFTED_SUM, figures["numDraftTokens"])
    add(ACCEPTED_SUM, figures["numAcceptedTokens"] if drafting else 0)


def iteration_counts(deltas: Samples) -> Counts:
    """Window totals over all iterations.

    Raises:
        NotMeasured: iterations are missing.
    """
    if missed := growth(deltas, MISSED):
        raise NotMeasured(
            f"{missed} iterations of the window were not seen: somebody else reads /metrics, or "
            "iter_stats_max_iterations is too small (-1 is unlimited)",
            "iterations_missed",
        )
    return Counts(
        steps=total(deltas, STEPS),
        accepted=total(deltas, ACCEPTED_SUM),
        drafted=growth(deltas, DRAFTED_SUM),
        # Some releases leave the number at 0; then it says nothing.
        requests=growth(deltas, COMPLETED) or None,
    )


def counts(deltas: Samples) -> Counts:
    """Window totals by token position."""
    drafted = by_label(deltas, DRAFTED, "token_position")
    accepted = by_label(deltas, ACCEPTED, "token_position")
    return Counts(
        steps=next(iter(drafted.values()), 0),
        accepted=sum(accepted.values()),
        drafted=sum(drafted.values()),
        per_position=tuple(accepted.get(position, 0) for position in drafted),
        requests=growth(deltas, REQUESTS),
        prompt_tokens=growth(deltas, PROMPT_TOKENS),
        generated_tokens=growth(deltas, GENERATED_TOKENS),
    )


def draft_length(samples: Samples) -> int | None:
    return len(by_label(samples, DRAFTED, "token_position")) or None


def speculation(argv: Sequence[str]) -> Speculation:
    """`speculative_config` of the YAML file that the command line names."""
    path = command_line.option(argv, "--config", "--extra-llm-api-options")
    config = _yaml(Path(path)).get("speculative_config") if path else None
    if not isinstance(config, dict):
        return Speculation()
    kind = str(config.get("decoding_type", "")).lower()
    relaxed = "use_relaxed_acceptance_for_thinking"
    return Speculation(
        method=METHODS.get(kind),
        num_speculative_tokens=config.get("max_draft_len")
        or config.get("num_nextn_predict_layers"),
        draft_model=config.get("speculative_model") or config.get("speculative_model_dir"),
        not_real=(f"{relaxed}=true",) if config.get(relaxed) else (),
        varying=tuple(
            f"{key}={config[key]}"
            for key in ("acceptance_rate_window_size", "use_dynamic_tree", "max_concurrency")
            if config.get(key)
        ),
    )


def _yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}  # in another container: what it says can't be read back
    return data if isinstance(data, dict) else {}


def reported(samples: Samples, _: Mapping[str, Any]) -> list[Reported]:
    found = select(samples, [ACCEPTANCE_LENGTH]).values()
    return [Reported(f"gauge {ACCEPTANCE_LENGTH}", value, "the last iteration") for value in found]


ITERATION_STATISTICS = Source(
    label="iteration statistics",
    quantity="(accepted + drafting requests) / drafting requests, pooled over all iterations",
    read=read_iterations,
    counts=iteration_counts,
    required=frozenset({ITERATIONS, MISSED, STEPS, DRAFTED_SUM, ACCEPTED_SUM}),
    optional=frozenset({COMPLETED}),
    poll_s=0.5,
)
COUNTERS = Source(
    label="counters",
    quantity="1 + accepted / drafted at the first position, by the engine's counters",
    path="/prometheus/metrics",
    read=reader(SPELLINGS),
    counts=counts,
    draft_length=draft_length,
    required=frozenset({DRAFTED, ACCEPTED}),
    optional=frozenset({REQUESTS, PROMPT_TOKENS, GENERATED_TOKENS}),
    lazy=frozenset({DRAFTED, ACCEPTED, REQUESTS}),
    gauges=frozenset({ACCEPTANCE_LENGTH}),
)

ENGINE = Engine(
    name="trt",
    aliases=("trtllm",),
    how_to_enable=HOW,
    sources=(ITERATION_STATISTICS, COUNTERS),
    prefixes=("trtllm:", "trtllm_"),
    owner="tensorrt_llm",
    speculation=speculation,
    reported=reported,
)
