"""A streamed answer: its bytes while they come, its meaning once they are all there."""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass, field
from typing import Any

from utils import records
from utils.acceptance.engines import TOO_MANY, Engine, RequestCounts

DONE = b"[DONE]"
# finish_reason of an answer that neither ended by itself nor reached its limit, by engine.
BROKEN_OFF = ("abort", "cancel", "error", "timeout")


@dataclass
class Answer:
    """What one request gave.

    ok: the stream ended as it should, with usage. started_s, ttft_s, e2e_s: seconds, the first
    since the load began, the others since the request was sent. chunk_tokens: tokens of each
    chunk that carried any, by token ids; None where ids weren't offered, and then `chunks`
    counts the chunks with text. spec: the engine's own figures for this request. model: under
    which name the server answered; gaps_s: seconds between chunks; neither is kept in a record.
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
    tool_calls: str = ""
    spec: RequestCounts | None = None
    model: str | None = None
    gaps_s: array[float] = field(default_factory=lambda: array("d"), repr=False)

    @property
    def said(self) -> str:
        """Everything that was generated, whatever the server's parsers made of it."""
        return self.reasoning + self.text + self.tool_calls

    def as_json(self) -> dict[str, Any]:
        row = asdict(self)
        del row["gaps_s"], row["model"]
        return row

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Answer:
        spec = row["spec"]
        return cls(**{**row, "spec": RequestCounts(**spec) if spec else None})


class StreamError(Exception):
    """The stream broke its own protocol; the request failed."""


@dataclass
class Events:
    """Server-sent events as they arrive.

    Nothing is decoded here: what one stream costs while it runs is latency of all the others.
    """

    lines: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    rest: bytes = b""

    def feed(self, data: bytes, elapsed_s: float) -> None:
        """Keep the data lines (ended by LF or CRLF); comments and other fields are skipped."""
        *lines, self.rest = (self.rest + data if self.rest else data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self.lines.append(line)
                self.times.append(elapsed_s)


def read(events: Events, answer: Answer, engine: Engine) -> None:
    """Make an answer of a stream that has ended.

    Raises:
        StreamError: undecodable, an error of the server's, no [DONE], no usage or no proper end.
    """
    payloads = [line[5:].strip() for line in events.lines]
    done = DONE in payloads
    if done:
        del payloads[payloads.index(DONE) :]
    text: list[str] = []
    reasoning: list[str] = []
    tool_calls: list[str] = []
    try:
        for data, elapsed_s in zip(_decoded(payloads), events.times, strict=False):
            for choice in data.get("choices") or ():
                _take(choice, answer, (text, reasoning, tool_calls), elapsed_s)
            if usage := data.get("usage"):
                answer.prompt_tokens = _count(usage.get("prompt_tokens"))
                answer.completion_tokens = _count(usage.get("completion_tokens"))
            answer.spec = engine.request_counts(data) or answer.spec
            answer.model = _text(data.get("model")) or answer.model
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StreamError(f"a chunk has an unknown shape: {error}") from error
    finally:
        answer.text, answer.reasoning = "".join(text), "".join(reasoning)
        answer.tool_calls = "".join(tool_calls)
    if not done:
        raise StreamError("the stream ended without [DONE]")
    if answer.completion_tokens is None or answer.prompt_tokens is None:
        raise StreamError("the stream gave no usage")
    if answer.finish_reason is None or answer.finish_reason.startswith(BROKEN_OFF):
        raise StreamError(f"the answer was broken off: finish_reason {answer.finish_reason}")
    answer.ok, answer.error = True, None


def _decoded(payloads: list[bytes]) -> list[dict[str, Any]]:
    """All chunks in one call of the parser; one by one only to name the broken one.

    A string can't hold a bare line break, so no chunk can reach into the next.
    """
    try:
        chunks: list[Any] = records.parse_json((b"[%b]" % b",\n".join(payloads)).decode())
    except ValueError:
        chunks = []
    if len(chunks) != len(payloads) or not all(isinstance(chunk, dict) for chunk in chunks):
        chunks = [_chunk(payload) for payload in payloads]
    for chunk in chunks:
        if "error" in chunk:
            raise StreamError(f"server error in the stream: {str(chunk['error'])[:200]}")
    return chunks


def _chunk(payload: bytes) -> dict[str, Any]:
    try:
        chunk = records.parse_json(payload.decode())
    except ValueError as error:
        raise StreamError(f"undecodable chunk {payload[:60]!r}: {error}") from error
    if not isinstance(chunk, dict):
        raise StreamError(f"chunk is not an object: {payload[:60]!r}")
    return chunk


def _take(
    choice: dict[str, Any],
    answer: Answer,
    parts: tuple[list[str], list[str], list[str]],
    elapsed_s: float,
) -> None:
    delta = choice.get("delta") or {}
    text = _text(delta.get("content") or choice.get("text"))
    reasoning = _text(delta.get("reasoning") or delta.get("reasoning_content"))
    calls = delta.get("tool_calls")
    ids = choice.get("token_ids")
    if ids:
        if answer.chunk_tokens is None:
            answer.chunk_tokens = []
        answer.chunk_tokens.append(len(ids))
    if text or reasoning or ids or calls:
        answer.chunks += 1
        if answer.e2e_s is not None:
            answer.gaps_s.append(elapsed_s - answer.e2e_s)
        answer.e2e_s = elapsed_s
        if answer.ttft_s is None:
            answer.ttft_s = elapsed_s
    if text:
        parts[0].append(text)
    if reasoning:
        parts[1].append(reasoning)
    for call in calls or ():
        said = call.get("function") or {}
        parts[2].append(_text(said.get("name")) + _text(said.get("arguments")))
    answer.finish_reason = _text(choice.get("finish_reason")) or answer.finish_reason


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not value:
        return ""
    raise TypeError(f"{value!r} where text should be")


def _count(value: Any) -> int | None:
    if value is None or (type(value) is int and 0 <= value < TOO_MANY):
        return value
    raise TypeError(f"{value!r} where a count should be")
