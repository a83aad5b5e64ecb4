"""Cross-checks of one window: each says what it compared, and whether the AL can be believed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from utils.acceptance.client import Answer
from utils.acceptance.engines import Counts

# n-gram lookup proposes nothing where the text has no match; such a step can't be told from one
# that accepted nothing by looking at the stream.
SOMETIMES_DRAFTS = {"ngram", "ngram_gpu", "suffix"}
MAX_EMPTY_SHARE = 0.1
DEGENERATE_RATIO = 8.0


@dataclass(frozen=True)
class Asked:
    """What a measurement was asked to be.

    draft_length: N. method: None when unknown. prompts: how many were sent. output_len: maximum
    new tokens of a request. reasoning: thinking mode asked for.
    """

    draft_length: int
    method: str | None
    thinking: str
    prompts: int
    output_len: int


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


def run(asked: Asked, counts: Counts, answers: Sequence[Answer]) -> list[Check]:
    """Every check, in the order in which a person would look for the cause."""
    return [
        *_answers(asked, answers),
        *_foreign_traffic(counts, answers),
        *_counters(asked, counts),
        *_requests_own_figures(counts, answers),
        *_stream(asked, counts, answers),
        *_outputs(asked, answers),
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
        "server_requests_equal_ours": (counts.requests, sum(a.ok for a in answers)),
        "server_generated_tokens_equal_ours": (
            counts.generated_tokens,
            sum(a.completion_tokens or 0 for a in answers),
        ),
        "server_prompt_tokens_equal_ours": (
            counts.prompt_tokens,
            sum(a.prompt_tokens or 0 for a in answers),
        ),
    }
    for name, (server, ours) in pairs.items():
        yield Check(
            name,
            server == ours,
            f"the server counted {server}, the client {ours}",
            "the same: a difference is somebody else's traffic, a warm-up or a missed rank",
        )


def _counters(asked: Asked, counts: Counts) -> Iterator[Check]:
    n, positions = asked.draft_length, counts.per_position
    yield Check("drafts", counts.steps > 0, f"{counts.steps} verify steps", "at least 1")
    yield Check(
        "accepted_equals_per_position_sum",
        sum(positions) == counts.accepted,
        f"{counts.accepted} accepted, {sum(positions)} over positions",
        "the same",
    )
    falling = all(a >= b for a, b in zip([counts.steps, *positions], positions, strict=False))
    yield Check(
        "positions_do_not_increase",
        falling,
        f"{counts.steps} steps, accepted per position {list(positions)}",
        "each at most the one before it",
    )
    fewer = asked.method in SOMETIMES_DRAFTS or asked.method is None
    most = n * counts.steps
    yield Check(
        "drafted_tokens",
        counts.accepted <= counts.drafted <= most and (fewer or counts.drafted == most),
        f"{counts.drafted} draft tokens in {counts.steps} steps",
        f"{'at most ' if fewer else ''}{most} (N={n})",
        fatal=not (counts.accepted <= counts.drafted <= most),
    )
    al = 1 + counts.accepted / counts.steps if counts.steps else 0.0
    yield Check("range", 1.0 <= al <= n + 1, f"AL {al:.4f}", f"1 to {n + 1}")


def _requests_own_figures(counts: Counts, answers: Sequence[Answer]) -> Iterator[Check]:
    known = [answer.spec for answer in answers if answer.spec]
    name = "requests_own_figures_equal_counters"
    if len(known) != len(answers):
        yield Check(name, None, f"{len(known)} of {len(answers)} answers carry them", "all or none")
        return
    own = (sum(s.steps for s in known), sum(s.accepted for s in known))
    yield Check(
        name,
        own == (counts.steps, counts.accepted),
        f"{own[0]} steps and {own[1]} accepted by requests, "
        f"{counts.steps} and {counts.accepted} by counters",
        "the same",
    )


def _stream(asked: Asked, counts: Counts, answers: Sequence[Answer]) -> Iterator[Check]:
    """Chunks as a second instrument: one chunk a step, so tokens = chunks + accepted.

    The verifier counts accepted tokens before the last step is cut at max_tokens or a stop token,
    so each request may have up to N more by its count than were delivered.
    """
    n, ok = asked.draft_length, [answer for answer in answers if answer.ok]
    largest = max((max(a.chunk_tokens or [0], default=0) for a in ok), default=0)
    if largest > n + 1:
        measured = f"a chunk of {largest} tokens"
        yield Check("stream_agrees", None, measured, f"at most N+1={n + 1}: chunks were merged")
        return
    delivered = sum(a.completion_tokens or 0 for a in ok)
    chunks = sum(a.chunks for a in ok)
    least, most = delivered - chunks, delivered - chunks + n * len(ok)
    yield Check(
        "stream_agrees",
        least <= counts.accepted <= most,
        f"{counts.accepted} accepted by counters",
        f"{least}..{most} by {chunks} stream chunks and {delivered} tokens",
    )
    steps = chunks - sum(a.chunks > 0 for a in ok)
    sometimes = asked.method in SOMETIMES_DRAFTS or asked.method is None
    yield Check(
        "stream_steps_agree",
        counts.steps <= steps if sometimes else counts.steps == steps,
        f"{counts.steps} verify steps by counters",
        f"{'at most ' if sometimes else ''}{steps} decode steps by stream chunks",
        fatal=counts.steps > steps,
    )


def _outputs(asked: Asked, answers: Sequence[Answer]) -> Iterator[Check]:
    ok = [answer for answer in answers if answer.ok]
    total = max(len(ok), 1)
    empty = sum((a.completion_tokens or 0) <= 1 or not (a.text + a.reasoning).strip() for a in ok)
    yield Check(
        "outputs_not_empty",
        empty / total <= MAX_EMPTY_SHARE,
        f"{empty} of {len(ok)} outputs are empty or one token",
        f"at most {MAX_EMPTY_SHARE:.0%}",
    )
    thought = sum(bool(a.reasoning.strip()) or "<think>" in a.text for a in ok)
    wanted = len(ok) if asked.thinking == "on" else 0
    yield Check(
        "thinking_seen",
        thought == wanted if asked.thinking == "off" else thought > 0,
        f"{thought} of {len(ok)} outputs reason",
        f"thinking {asked.thinking}: {wanted}",
    )
    capped = sum(a.finish_reason == "length" for a in ok)
    yield Check(
        "outputs_capped",
        None,
        f"{capped} of {len(ok)} outputs end at {asked.output_len} tokens",
        "for information",
        fatal=False,
    )
    looping = sum(_repeats(a.text + a.reasoning) for a in ok)
    yield Check(
        "outputs_not_degenerate",
        looping == 0,
        f"{looping} of {len(ok)} outputs compress more than {DEGENERATE_RATIO:g}-fold",
        "none; loops raise the AL",
        fatal=False,
    )


def _repeats(text: str) -> bool:
    raw = text.encode()
    return len(raw) > 200 and len(raw) / len(zlib.compress(raw)) > DEGENERATE_RATIO
