"""ROCm ATOM: counters on the API port, a snapshot that is computed anew every 5 s.

Turn on: nothing to do. Read: /metrics, `atom:mtp_decode_steps_total` by number of accepted drafts,
of which steps, accepted tokens and positions follow; steps are counted as vLLM does, prefill
left out. Since a page may be 5 s old, a window's ends wait until it was computed anew. Where
/metrics lacks them, /debug/mtp_stats gives the same distribution live.

Can't be known: requests' own figures, data-parallel ranks (they are summed by the engine).
`atom:mtp_average_tokens_per_forward` is right by definition, but over the server's lifetime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utils import records
from utils.acceptance import argv as command_line
from utils.acceptance.engines import Counts, Engine, Reported, Source, Speculation, growth
from utils.acceptance.exposition import Samples, Series, by_label, reader, select
from utils.errors import NotMeasured

STEPS = "atom:mtp_decode_steps_total"
DRAFTED = "atom:mtp_draft_tokens_total"
ACCEPTED = "atom:mtp_accepted_tokens_total"
REQUESTS = "atom:requests_finished_total"
PROMPT_TOKENS = "atom:prompt_tokens_total"
GENERATED_TOKENS = "atom:generation_tokens_total"
AVERAGE = "atom:mtp_average_tokens_per_forward"
REFRESHED = "atom:metrics_last_refresh_timestamp_seconds"
HOW = "start ATOM with --method and --num-speculative-tokens; its /metrics is on the API port"


def counts(deltas: Samples) -> Counts:
    """Window totals of the step distribution.

    Raises:
        NotMeasured: it contradicts the counter of accepted tokens.
    """
    steps = by_label(deltas, STEPS, "accepted_tokens")
    accepted = sum(number * count for number, count in steps.items())
    counted = growth(deltas, ACCEPTED)
    if counted is not None and counted != accepted:
        raise NotMeasured(f"{STEPS} adds up to {accepted} accepted tokens, {ACCEPTED} is {counted}")
    most = max(steps, default=0)
    return Counts(
        steps=sum(steps.values()),
        accepted=accepted,
        drafted=growth(deltas, DRAFTED),
        per_position=tuple(
            sum(count for number, count in steps.items() if number > position)
            for position in range(most)
        ),
        requests=growth(deltas, REQUESTS),
        prompt_tokens=growth(deltas, PROMPT_TOKENS),
        generated_tokens=growth(deltas, GENERATED_TOKENS),
    )


def read_debug(text: str, endpoint: str, _type: str, _: Samples) -> Samples:
    """/debug/mtp_stats under the names of /metrics.

    Raises:
        NotMeasured: another answer, or speculation is off.
    """
    try:
        stats = records.parse_json(text)
    except ValueError as error:
        raise NotMeasured(f"{endpoint} is not JSON ({error}): {HOW}") from error
    if not isinstance(stats, dict) or not stats.get("enabled"):
        raise NotMeasured(f"{endpoint} says that speculation is off: {HOW}")
    return {
        Series(endpoint, DRAFTED, ()): float(stats["total_draft_tokens"]),
        Series(endpoint, ACCEPTED, ()): float(stats["total_accepted_tokens"]),
        **{
            Series(endpoint, STEPS, (("accepted_tokens", str(number)),)): float(count)
            for number, count in stats["distribution"].items()
        },
    }


def speculation(argv: Sequence[str]) -> Speculation:
    forced = ("--spec-decode-acceptance-length", "--spec-decode-acceptance-rate")
    values = {name: command_line.option(argv, name) for name in forced}
    return Speculation(
        method=command_line.option(argv, "--method"),
        num_speculative_tokens=command_line.number(argv, "--num-speculative-tokens"),
        draft_model=command_line.option(argv, "--draft-model"),
        not_real=tuple(f"{name}={value}" for name, value in values.items() if value is not None),
    )


def reported(samples: Samples, _: Mapping[str, Any]) -> list[Reported]:
    found = select(samples, [AVERAGE]).values()
    return [Reported(f"gauge {AVERAGE}", value, "the server's lifetime") for value in found]


COUNTERS = Source(
    label="counters",
    quantity="1 + accepted / steps, by the distribution of decode steps",
    read=reader({}),
    counts=counts,
    required=frozenset({STEPS, DRAFTED, ACCEPTED}),
    optional=frozenset({REQUESTS, PROMPT_TOKENS, GENERATED_TOKENS}),
    lazy=frozenset({STEPS}),
    gauges=frozenset({AVERAGE}),
    busy=frozenset({"atom:requests_running", "atom:requests_waiting"}),
    refreshed=REFRESHED,
)
DEBUG = Source(
    label="/debug/mtp_stats",
    quantity=COUNTERS.quantity,
    path="/debug/mtp_stats",
    read=read_debug,
    counts=counts,
    required=frozenset({STEPS, DRAFTED, ACCEPTED}),
    lazy=frozenset({STEPS}),
)

ENGINE = Engine(
    name="atom",
    how_to_enable=HOW,
    sources=(COUNTERS, DEBUG),
    prefixes=("atom:",),
    owner="atom",
    speculation=speculation,
    reported=reported,
)
