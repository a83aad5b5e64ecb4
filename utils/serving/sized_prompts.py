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
Count = Callable[[str], int]


def build(texts: Sequence[str], length: int, number: int, count: Count) -> list[Prompt]:
    """So many prompts of `length` tokens as the server renders them.

    count: rendered tokens of one user message.

    Raises:
        NotMeasured: the server can't tokenize, or the template alone is longer than asked.
    """
    empty = count("")
    if empty >= length:
        raise NotMeasured(f"ISL={length} is not more than the chat template's {empty} tokens")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        contents = list(pool.map(lambda i: _cut(texts, length, i, empty, count), range(number)))
    return [
        Prompt(f"serving/{i}", ({"role": "user", "content": content},))
        for i, content in enumerate(contents)
    ]


def _cut(texts: Sequence[str], length: int, number: int, empty: int, count: Count) -> str:
    """The longest text that fits, its start of its own; between characters, not between words.

    The number makes each one unique. Tokens grow nearly evenly with characters, so where the
    last two counts point is tried first, and the middle only when that did not halve what is left.
    """
    low, at_low = 0, empty
    high, text = 0, f"Request {number}."
    turn = number
    while (at_high := count(text)) <= length:
        low, at_low = len(text), at_high
        share = (length - empty) / max(at_high - empty, 1)
        wanted = max(int(len(text) * share * 1.05), len(text) + 1)
        while len(text) < wanted:
            text += " " + " ".join(texts[turn % len(texts)].split())
            turn += 1
    high = len(text)
    halve = False
    while high - low > 1:
        before = high - low
        if halve:
            middle = (low + high) // 2
        else:
            share = (length + 0.5 - at_low) / (at_high - at_low)
            middle = min(max(low + int(share * (high - low)), low + 1), high - 1)
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
