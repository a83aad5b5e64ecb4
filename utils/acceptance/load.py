"""What is sent: conversations, and every field of their requests."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from utils.acceptance.engines import Engine

ROUTES = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
KEY_VARIABLE = "OPENAI_API_KEY"


@dataclass(frozen=True)
class Prompt:
    """One conversation: the messages that are sent first, then later turns of the user."""

    id: str
    messages: Sequence[Mapping[str, str]]
    later: tuple[str, ...] = ()

    def ids(self) -> list[str]:
        """Names of its requests; the first turn has the prompt's own."""
        return [self.id, *(f"{self.id}#{turn}" for turn in range(2, len(self.later) + 2))]


@dataclass(frozen=True)
class Load:
    """How prompts are sent: every sampling and template field explicit, none left to a default.

    output_len: maximum new tokens. stall_s: longest silence of a stream. request_deadline_s,
    total_deadline_s: seconds. endpoint: completions sends the message's text as it is, for a
    model whose chat template is in the text already.
    """

    base_url: str
    model: str
    sampling: Mapping[str, float]
    chat_template_kwargs: Mapping[str, Any]
    output_len: int
    concurrency: int
    request_deadline_s: float = 1800.0
    total_deadline_s: float = 4 * 3600.0
    stall_s: float = 600.0
    endpoint: str = "chat"

    @property
    def url(self) -> str:
        return self.base_url + ROUTES[self.endpoint]

    def body(self, messages: Sequence[Mapping[str, str]], engine: Engine) -> dict[str, Any]:
        """The request body of one turn."""
        kwargs = dict(self.chat_template_kwargs)
        chat = {"messages": [dict(message) for message in messages]}
        return {
            "model": self.model,
            **(chat if self.endpoint == "chat" else {"prompt": messages[-1]["content"]}),
            "max_tokens": self.output_len,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.sampling,
            **({"chat_template_kwargs": kwargs} if kwargs and self.endpoint == "chat" else {}),
            **engine.extra_body,
        }


def api_headers() -> dict[str, str]:
    """The API key of the environment; it goes nowhere but into this header."""
    key = os.environ.get(KEY_VARIABLE)
    return {"Authorization": f"Bearer {key}"} if key else {}


def payload_digest(load: Load, prompts: Sequence[Prompt], engine: Engine) -> str:
    """sha256 over every request body in order: two runs with one digest sent the same.

    Of later turns only the user's words are known beforehand.
    """
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(json.dumps(load.body(prompt.messages, engine), sort_keys=True).encode())
        for turn in prompt.later:
            digest.update(json.dumps(turn).encode())
    return digest.hexdigest()


def planned(prompts: Sequence[Prompt]) -> list[str]:
    """Names of all requests, in the order of their answers."""
    return [name for prompt in prompts for name in prompt.ids()]


def discreet(text: str) -> str:
    """Another's words without our key in them."""
    key = os.environ.get(KEY_VARIABLE)
    return text.replace(key, "***") if key else text
