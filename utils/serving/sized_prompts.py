"""Prompts of an asked length: real text, cut by the server's own tokenizer.

Real text rather than random tokens: what a drafter makes of those says nothing about what it makes
of text, and the acceptance that throughput rests on would be another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from utils.acceptance.client import Prompt, api_headers
from utils.acceptance.window import local_session
from utils.errors import NotMeasured

KIND = "text"
AT_ONCE = 8
SLACK = 250  # of so many tokens one may be missing; the gate allows five times as much
GUESS = 3.0  # characters a token, until the first prompt has told
Count = Callable[[str], int]


def build(texts: Sequence[str], length: int, number: int, count: Count) -> list[Prompt]:
    """So many prompts of `length` tokens as the server renders them, or one in 250 less.

    count: rendered tokens of one user message; a long benchmark asks it ten thousand times.

    Raises:
        NotMeasured: the server can't tokenize, or the template alone is longer than asked.
    """
    empty = count("")
    if empty >= length:
        raise NotMeasured(f"ISL={length} is not more than the chat template's {empty} tokens")
    first = _cut(texts, length, 0, empty, count, GUESS)
    rate = len(first) / (length - empty)

    def cut(i: int) -> str:
        return _cut(texts, length, i, empty, count, rate)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        contents = [first, *pool.map(cut, range(1, number))]
    return [
        Prompt(f"serving/{i}", ({"role": "user", "content": content},))
        for i, content in enumerate(contents)
    ]


def _cut(
    texts: Sequence[str], length: int, number: int, empty: int, count: Count, rate: float
) -> str:
    """Text of its own that fits, cut between characters: between words, short ones lack percents.

    The number makes each one unique. rate: characters a token; where it and the last counts point
    is tried first, and the middle only when that did not halve what is left.
    """
    enough = length - length // SLACK
    text, turn = f"Request {number}.", number
    low, at_low, wanted = 0, empty, (length - empty) * rate
    while True:
        while len(text) < wanted:
            text += " " + " ".join(texts[turn % len(texts)].split())
            turn += 1
        high = len(text) if low else min(len(text), max(int(wanted), 1))
        at_high = count(text[:high])
        if at_high > length:
            break
        if at_high >= enough:
            return text[:high]
        low, at_low = high, at_high
        wanted = max(high * 1.05 * (length - empty) / max(at_high - empty, 1), high + 1.0)
    halve = False
    while high - low > 1 and at_low < enough:
        before = high - low
        share = (length + 0.5 - at_low) / (at_high - at_low)
        middle = (low + high) // 2 if halve else low + int(share * before)
        middle = min(max(middle, low + 1), high - 1)
        if (found := count(text[:middle])) <= length:
            low, at_low = middle, found
        else:
            high, at_high = middle, found
        halve = not halve and (high - low) * 2 > before
    return text[:low]


def counter(base_url: str, model: str, chat_template_kwargs: Mapping[str, Any]) -> Count:
    """Asks the server's /tokenize, which renders the chat template as the chat route does."""
    session = local_session()
    url = f"{base_url}/tokenize"

    def count(text: str) -> int:
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": text}]}
        if chat_template_kwargs:
            body["chat_template_kwargs"] = dict(chat_template_kwargs)
        try:
            response = session.post(url, json=body, headers=api_headers(), timeout=30)
            response.raise_for_status()
            return int(response.json()["count"])
        except (requests.RequestException, ValueError, KeyError) as error:
            raise NotMeasured(f"{url} can't count tokens: {error}") from error

    return count
