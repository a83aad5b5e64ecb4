"""Cross-checks of one window: each says what it compared, and whether the AL can be believed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from utils.acceptance.client import Answer, Pace
from utils.acceptance.engines import Counts
from utils.acceptance.tally import BY_STREAM, Tally, always_drafts

STREAM_TOLERANCE = 0.02
FORCED_TOLERANCE = 0.005
MAX_LOOP_LAG_S = 0.25
MAX_CPU_SHARE = 0.9


@dataclass(frozen=True)
class Asked:
    """What a measurement was asked to be.

    draft_length: N. method: None when unknown. prompts: how many requests were to be sent.
    output_len: maximum new tokens of a request. thinking: reasoning mode asked for.
    """

    draft_length: int
    method: str | None
    thinking: str
    prompts: int
    output_len: int


@dataclass(frozen=True)
class Readback:
    """What the server said of itself, as far as a window's validity hangs on it.

    varying: settings under which N isn't the draft length of every step. forced_lengths:
    acceptance lengths that some environment would force. one_process: whether something proves
    that one process answered all the time.
    """

    varying: tuple[str, ...] = ()
    forced_lengths: tuple[float, ...] = ()
    prefix_caching: bool | None = None
    one_process: bool | None = None


@dataclass(frozen=True)
class Check:
    """One comparison. ok: None where it does not apply. fatal: a broken one invalidates the AL."""

    name: str
    ok: bool | None
    measured: str
    expected: str
    fatal: bool = True

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def broken(self) -> bool:
        return self.fatal and self.ok is False

    def __str__(self) -> str:
        return f"{self.name}: {self.measured}, want {self.expected}"


def run(
    asked: Asked,
    tally: Tally,
    answers: Sequence[Answer],
    readback: Readback,
    pace: Pace | None = None,
) -> list[Check]:
    """Every check of the counts, in the order in which a person would look for the cause."""
    return [
        *_answers(asked, answers),
        *_foreign_traffic(tally.counts, answers),
        *_server(tally.counts, readback),
        *_stream(asked, tally, answers),
        *_counts(asked, tally.counts),
        *_requests_own_figures(asked, tally),
        *_client(asked, pace),
    ]


def _answers(asked: Asked, answers: Sequence[Answer]) -> Iterator[Check]:
    failed = [answer for answer in answers if not answer.ok]
    example = f" ({failed[0].id}: {failed[0].error})" if failed else ""
    good = len(answers) - len(failed)
    yield Check(
        "all_requests_succeeded",
        good == asked.prompts,
        f"{good} of {asked.prompts} succeeded{example}",
        "all",
    )


def _foreign_traffic(counts: Counts, answers: Sequence[Answer]) -> Iterator[Check]:
    pairs = {
        "requests": (counts.requests, sum(a.ok for a in answers)),
        "generated_tokens": (
            counts.generated_tokens,
            sum(a.completion_tokens or 0 for a in answers),
        ),
        "prompt_tokens": (counts.prompt_tokens, sum(a.prompt_tokens or 0 for a in answers)),
    }
    for name, (server, ours) in pairs.items():
        yield Check(
            f"server_{name}_equal_ours",
            None if server is None else server == ours,
            f"the server counted {'nothing' if server is None else server}, the client {ours}",
            "the same: a difference is somebody else's traffic, a warm-up or a missed rank",
        )
    known = counts.requests is not None or counts.generated_tokens is not None
    yield Check(
        "traffic_is_countable",
        known,
        f"the server's metrics {'count' if known else 'do not count'} requests or tokens",
        "a count: without it somebody else's traffic can't be excluded",
        fatal=False,
    )


def _server(counts: Counts, readback: Readback) -> Iterator[Check]:
    yield Check(
        "one_process",
        readback.one_process or None,
        f"the same process {'was' if readback.one_process else 'was not'} proven at both ends",
        "a start time, on the metrics page or of the local process",
        fatal=False,
    )
    yield Check(
        "draft_length_is_fixed",
        not readback.varying,
        f"the server has {', '.join(readback.varying) or 'nothing that varies it'}",
        "N draft tokens in every step",
    )
    yield Check(
        "prefix_caching_off",
        None if readback.prefix_caching is None else not readback.prefix_caching,
        f"prefix caching is {'on' if readback.prefix_caching else 'off or unknown'}",
        "off: a hit can pad the first step, and acceptance drifts with what was served before",
        fatal=False,
    )
    al = acceptance_length(counts)
    forced = [v for v in readback.forced_lengths if abs(al / v - 1) <= FORCED_TOLERANCE]
    yield Check(
        "not_a_forced_value",
        not forced if readback.forced_lengths else None,
        f"AL {al:.4f}, forced by the environment: {list(readback.forced_lengths) or 'nothing'}",
        "an AL that no setting would have produced",
    )


def acceptance_length(counts: Counts) -> float:
    return 1 + counts.accepted / counts.steps if counts.steps else 0.0


def _counts(asked: Asked, counts: Counts) -> Iterator[Check]:
    n, positions = asked.draft_length, counts.per_position
    yield Check("drafts", counts.steps > 0, f"{counts.steps} verify steps", "at least 1")
    known = positions or ()
    yield Check(
        "accepted_equals_per_position_sum",
        None if positions is None else sum(known) == counts.accepted,
        f"{counts.accepted} accepted, {sum(known)} over positions",
        "the same",
    )
    falling = all(a >= b for a, b in zip([counts.steps, *known], known, strict=False))
    yield Check(
        "positions_do_not_increase",
        None if positions is None else falling,
        f"{counts.steps} steps, accepted per position {list(known)}",
        "each at most the one before it",
    )
    yield _drafted(asked, counts)
    al = acceptance_length(counts)
    yield Check("range", 1.0 <= al <= n + 1, f"AL {al:.4f}", f"1 to {n + 1}")


def _drafted(asked: Asked, counts: Counts) -> Check:
    drafted, most = counts.drafted, asked.draft_length * counts.steps
    if drafted is None:
        return Check("drafted_tokens", None, "the engine counts no draft tokens", f"at most {most}")
    possible = counts.accepted <= drafted <= most
    fewer = not always_drafts(asked.method)
    return Check(
        "drafted_tokens",
        possible and (fewer or drafted == most),
        f"{drafted} draft tokens in {counts.steps} steps",
        f"{'at most ' if fewer else ''}{most} (N={asked.draft_length})",
        fatal=not possible,
    )


def _requests_own_figures(asked: Asked, tally: Tally) -> Iterator[Check]:
    name, own, counters = (
        "requests_own_figures_equal_counters",
        tally.by_requests,
        tally.by_counters,
    )
    if not own or not counters:
        which = "counters" if own else "requests' own figures"
        yield Check(name, None, f"there are no {which}", "both")
        return
    lost = asked.draft_length * (counters.requests or 0) if counters.delivered_only else 0
    steps = own.steps >= counters.steps if own.all_steps else own.steps == counters.steps
    yield Check(
        name,
        steps and own.accepted - lost <= counters.accepted <= own.accepted,
        f"{own.steps} steps and {own.accepted} accepted by requests, "
        f"{counters.steps} and {counters.accepted} by counters",
        f"the same{f', less up to {lost} cut at stops' if lost else ''}",
    )


def _stream(asked: Asked, tally: Tally, answers: Sequence[Answer]) -> Iterator[Check]:
    """Chunks as a second instrument: one chunk a step, so tokens = chunks + accepted.

    The verifier counts accepted tokens before the last step is cut at max_tokens or a stop token,
    so each request may have up to N more by its count than were delivered. Chunks that a slow
    client or router merged make fewer steps and more accepted tokens, never the reverse.
    """
    n, ok, counts = asked.draft_length, [a for a in answers if a.ok], tally.counts
    delivered, chunks = sum(a.completion_tokens or 0 for a in ok), sum(a.chunks for a in ok)
    low, high = delivered - len(ok), delivered - len(ok) + n * len(ok)
    total = counts.steps + counts.accepted
    yield Check(
        "tokens_add_up",
        (low if always_drafts(asked.method) and not counts.delivered_only else 0) <= total <= high,
        f"{counts.steps} steps and {counts.accepted} accepted make {total}",
        f"{low}..{high} by {delivered} tokens of {len(ok)} requests",
        fatal=total > high,
    )
    largest = max((max(a.chunk_tokens or [0], default=0) for a in ok), default=0)
    if largest > n + 1:
        only = tally.source == BY_STREAM
        expected = f"at most N+1={n + 1}: chunks were merged"
        yield Check(
            "stream_agrees", False if only else None, f"a chunk of {largest} tokens", expected
        )
        return
    if tally.source == BY_STREAM:
        exact = all(answer.chunk_tokens for answer in ok)
        said = "carry token ids" if exact else "carry no token ids: a token without text is missed"
        yield Check("stream_agrees", exact, f"chunks {said}", "token ids", fatal=False)
        return
    least = delivered - chunks
    yield _accepted_by_stream(counts, least, least + n * len(ok), chunks)
    yield _steps_by_stream(asked, counts, chunks - sum(a.chunks > 0 for a in ok))


def _accepted_by_stream(counts: Counts, least: int, most: int, chunks: int) -> Check:
    return Check(
        "stream_agrees",
        least <= counts.accepted <= most,
        f"{counts.accepted} accepted by the AL's instrument",
        f"{least}..{most} by {chunks} stream chunks (merged chunks raise the lower end)",
        fatal=counts.accepted > most * (1 + STREAM_TOLERANCE),
    )


def _steps_by_stream(asked: Asked, counts: Counts, steps: int) -> Check:
    always = always_drafts(asked.method)
    return Check(
        "stream_steps_agree",
        counts.steps == steps if always else counts.steps <= steps,
        f"{counts.steps} verify steps",
        f"{'' if always else 'at most '}{steps} decode steps by stream chunks",
        fatal=False,
    )


def _client(asked: Asked, pace: Pace | None) -> Iterator[Check]:
    if pace is None:
        return
    wanted = min(pace.concurrency, asked.prompts)
    yield Check(
        "client_keeps_up",
        pace.reached_concurrency >= wanted
        and pace.loop_lag_s <= MAX_LOOP_LAG_S
        and pace.cpu_share <= MAX_CPU_SHARE,
        f"{pace.reached_concurrency} at once, start lag {pace.start_lag_s:.3f} s, "
        f"loop lag {pace.loop_lag_s:.3f} s, {pace.cpu_share:.0%} of a core",
        f"{wanted} at once, loop lag at most {MAX_LOOP_LAG_S:g} s, "
        f"at most {MAX_CPU_SHARE:.0%} of a core: else the client is the bottleneck",
        fatal=False,
    )
