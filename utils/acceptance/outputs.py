"""Checks of what was generated: empty, thinking or not, cut off, looping."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

from utils.acceptance.checks import Asked, Check
from utils.acceptance.client import Answer

MAX_EMPTY_SHARE = 0.1
DEGENERATE_RATIO = 8.0


def run(asked: Asked, answers: Sequence[Answer]) -> Iterator[Check]:
    ok = [answer for answer in answers if answer.ok]
    total = max(len(ok), 1)
    empty = sum((a.completion_tokens or 0) <= 1 or not a.said.strip() for a in ok)
    yield Check(
        "outputs_not_empty",
        empty / total <= MAX_EMPTY_SHARE,
        f"{empty} of {len(ok)} outputs are empty or one token",
        f"at most {MAX_EMPTY_SHARE:.0%}",
    )
    thought = sum(map(reasons, ok))
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
    looping = sum(map(repeats, ok))
    yield Check(
        "outputs_not_degenerate",
        looping == 0,
        f"{looping} of {len(ok)} outputs compress more than {DEGENERATE_RATIO:g}-fold",
        "none; loops raise the AL",
        fatal=False,
    )


def reasons(answer: Answer) -> bool:
    """Whether it thinks, told apart by the server or in its text."""
    return bool(answer.reasoning.strip()) or "<think>" in answer.text


def repeats(answer: Answer) -> bool:
    """Whether it goes round in a loop: then it compresses far better than text does."""
    raw = answer.said.encode()
    return len(raw) > 200 and len(raw) / len(zlib.compress(raw)) > DEGENERATE_RATIO
