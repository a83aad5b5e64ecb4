"""Checks of the counts: against themselves, against requests' own figures and stream chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from utils.acceptance.checks import Asked, Check, acceptance_length
from utils.acceptance.client import Answer
from utils.acceptance.engines import Counts
from utils.acceptance.tally import BY_STREAM, Tally, always_drafts

STREAM_TOLERANCE = 0.02


def run(
    asked: Asked, tally: Tally, answers: Sequence[Answer], drafts_per_step: int | None = None
) -> Iterator[Check]:
    """drafts_per_step: draft tokens of a step where they are a tree; None: N."""
    yield from _stream(asked, tally, answers)
    yield from _counts(asked, tally.counts, drafts_per_step or asked.draft_length)
    yield from _requests_own_figures(asked, tally)


def _counts(asked: Asked, counts: Counts, drafts_per_step: int) -> Iterator[Check]:
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
    yield _drafted(asked, counts, drafts_per_step)
    al = acceptance_length(counts)
    yield Check("range", 1.0 <= al <= n + 1, f"AL {al:.4f}", f"1 to {n + 1}")


def _drafted(asked: Asked, counts: Counts, drafts_per_step: int) -> Check:
    drafted, most, n = counts.drafted, drafts_per_step * counts.steps, asked.draft_length
    size = f"N={n}" if drafts_per_step == n else f"trees of {drafts_per_step}, N={n} deep"
    if drafted is None:
        return Check("drafted_tokens", None, "the engine counts no draft tokens", f"at most {most}")
    possible = counts.accepted <= drafted <= most
    fewer = not always_drafts(asked.method)
    return Check(
        "drafted_tokens",
        possible and (fewer or drafted == most),
        f"{drafted} draft tokens in {counts.steps} steps",
        f"{'at most ' if fewer else ''}{most} ({size})",
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
