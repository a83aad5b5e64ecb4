"""The load: an asynchronous, streaming OpenAI client with fixed concurrency and deadlines."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from utils import records
from utils.acceptance.engines import Engine, RequestCounts

TRIES = 3
RETRY_STATUSES = {429, 502, 503, 504}


@dataclass(frozen=True)
class Prompt:
    """One conversation to send; the messages are sent as they are."""

    id: str
    messages: Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Load:
    """How prompts are sent: every sampling and template field explicit, none left to a default.

    output_len: maximum new tokens. request_deadline_s, total_deadline_s: seconds.
    """

    base_url: str
    model: str
    sampling: Mapping[str, float]
    chat_template_kwargs: Mapping[str, Any]
    output_len: int
    concurrency: int
    request_deadline_s: float = 1800.0
    total_deadline_s: float = 4 * 3600.0

    def body(self, prompt: Prompt, engine: Engine) -> dict[str, Any]:
        """The request body of one prompt."""
        kwargs = dict(self.chat_template_kwargs)
        return {
            "model": self.model,
            "messages": [dict(message) for message in prompt.messages],
            "max_tokens": self.output_len,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.sampling,
            **({"chat_template_kwargs": kwargs} if kwargs else {}),
            **engine.extra_body,
        }


@dataclass
class Answer:
    """What one request gave.

    ok: the stream ended as it should, with usage. started_s, ttft_s, e2e_s: seconds, the first
    since the load began, the others since the request was sent. chunk_tokens: tokens of each
    chunk that carried any, by token ids; None where ids weren't offered, and then `chunks`
    counts the chunks with text. spec: the engine's own figures for this request.
    """

    id: str
    ok: bool = False
    error: str | None = None
    status: int | None = None
    tries: int = 0
    started_s: float = 0.0
    ttft_s: float | None = None
    e2e_s: float | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    chunks: int = 0
    chunk_tokens: list[int] | None = None
    text: str = ""
    reasoning: str = ""
    spec: RequestCounts | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Answer:
        spec = row["spec"]
        return cls(**{**row, "spec": RequestCounts(**spec) if spec else None})


class StreamError(Exception):
    """The stream broke its own protocol; the request failed."""


@dataclass
class _Parts:
    """Text of a stream, gathered chunk by chunk and joined once."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)


def payload_digest(load: Load, prompts: Sequence[Prompt], engine: Engine) -> str:
    """sha256 over every request body in order: two runs with one digest sent the same."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(json.dumps(load.body(prompt, engine), sort_keys=True).encode())
    return digest.hexdigest()


def run(load: Load, prompts: Sequence[Prompt], engine: Engine) -> list[Answer]:
    """Send every prompt once, `concurrency` at a time; answers in the order of the prompts."""
    return asyncio.run(_run(load, prompts, engine))


async def _run(load: Load, prompts: Sequence[Prompt], engine: Engine) -> list[Answer]:
    import aiohttp

    answers = [Answer(prompt.id) for prompt in prompts]
    waiting = iter(list(zip(prompts, answers, strict=True)))
    began = time.perf_counter()

    async def worker(session: aiohttp.ClientSession) -> None:
        for prompt, answer in waiting:
            answer.started_s = time.perf_counter() - began
            await _ask(session, load, load.body(prompt, engine), answer, engine)

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=load.request_deadline_s),
        trust_env=False,
        read_bufsize=2**20,
    ) as session:
        workers = [asyncio.ensure_future(worker(session)) for _ in range(load.concurrency)]
        _, late = await asyncio.wait(workers, timeout=load.total_deadline_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=bool(late))
    for answer in answers:
        if not answer.ok and answer.error is None:
            answer.error = f"not finished within {load.total_deadline_s:g} s for the whole load"
    return answers


async def _ask(
    session: Any, load: Load, body: dict[str, Any], answer: Answer, engine: Engine
) -> None:
    """One request; tried again only while no byte of an answer has arrived."""
    import aiohttp

    url = f"{load.base_url}/v1/chat/completions"
    while True:
        answer.tries += 1
        sent = time.perf_counter()
        try:
            async with session.post(url, json=body) as response:
                answer.status = response.status
                if response.status == 200:
                    await _read(response, answer, engine, sent)
                    return
                detail = (await response.text())[:200]
                answer.error = f"HTTP {response.status}: {detail}"
                retry = response.status in RETRY_STATUSES
        except aiohttp.ClientConnectorError as error:
            answer.error, retry = f"no connection: {error}", True
        except asyncio.TimeoutError:
            answer.error, retry = f"no end within {load.request_deadline_s:g} s", False
        except (aiohttp.ClientError, StreamError, OSError) as error:
            answer.error, retry = f"{type(error).__name__}: {error}", False
        if not retry or answer.tries >= TRIES:
            return
        await asyncio.sleep(0.5 * answer.tries)


async def _read(response: Any, answer: Answer, engine: Engine, sent: float) -> None:
    parts, done = _Parts(), False
    try:
        async for event in _events(response):
            if event == b"[DONE]":
                done = True
                break
            _take(_decode(event), answer, parts, engine, time.perf_counter() - sent)
    finally:
        answer.text, answer.reasoning = "".join(parts.text), "".join(parts.reasoning)
    if not done:
        raise StreamError("the stream ended without [DONE]")
    if answer.completion_tokens is None:
        raise StreamError("the stream gave no usage")
    answer.ok, answer.error = True, None


async def _events(response: Any) -> AsyncIterator[bytes]:
    """Data of each server-sent event (lines end in LF or CRLF; comments and fields are skipped)."""
    async for line in response.content:
        line = line.strip()
        if line.startswith(b"data:"):
            yield line[5:].strip()


def _decode(event: bytes) -> dict[str, Any]:
    try:
        data = records.parse_json(event.decode())
    except ValueError as error:
        raise StreamError(f"undecodable chunk {event[:60]!r}: {error}") from error
    if not isinstance(data, dict):
        raise StreamError(f"chunk is not an object: {event[:60]!r}")
    if "error" in data:
        raise StreamError(f"server error in the stream: {str(data['error'])[:200]}")
    return data


def _take(
    data: dict[str, Any], answer: Answer, parts: _Parts, engine: Engine, elapsed_s: float
) -> None:
    for choice in data.get("choices") or ():
        delta = choice.get("delta") or {}
        text = delta.get("content") or ""
        reasoning = delta.get("reasoning") or delta.get("reasoning_content") or ""
        ids = choice.get("token_ids")
        if ids:
            if answer.chunk_tokens is None:
                answer.chunk_tokens = []
            answer.chunk_tokens.append(len(ids))
        if text or reasoning or ids or delta.get("tool_calls"):
            answer.chunks += 1
            answer.e2e_s = elapsed_s
            if answer.ttft_s is None:
                answer.ttft_s = elapsed_s
        parts.text.append(text)
        parts.reasoning.append(reasoning)
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    if usage := data.get("usage"):
        answer.prompt_tokens = usage.get("prompt_tokens")
        answer.completion_tokens = usage.get("completion_tokens")
    answer.spec = engine.request_counts(data) or answer.spec
