"""A speculating server whose every word passes through somebody's hands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aiohttp import web

from tests.fakes.speculating import MODEL, SpeculatingServer

ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
Scrape = Callable[[web.Request, web.Response], web.StreamResponse]


class HostileServer(SpeculatingServer):
    """page: changes a metrics page, once the workload has begun. scrape: answers in its stead.

    models, told: answers of /v1/models and /server_info. chunk: changes a chunk in place. drop:
    number of the request whose connection ends after the first chunk.
    """

    def __init__(
        self,
        *,
        page: Callable[[str], str] = lambda text: text,
        scrape: Scrape | None = None,
        models: Any = None,
        told: Any = None,
        drop: int | None = None,
        chunk: Callable[[dict[str, Any]], object] = lambda _: None,
        **usual: Any,
    ) -> None:
        super().__init__(**usual)
        self.page, self.scrape, self.chunk = page, scrape, chunk
        self.offered, self.told, self.drop = models, told, drop

    async def models(self, request: web.Request) -> web.Response:
        if self.offered is None:
            return await super().models(request)
        return web.json_response(self.offered)

    async def info(self, request: web.Request) -> web.Response:
        return await super().info(request) if self.told is None else web.json_response(self.told)

    async def metrics(self, request: web.Request) -> web.StreamResponse:  # type: ignore[override]
        usual = await super().metrics(request)
        assert usual.text is not None
        text = self.page(usual.text) if self.requests > 1 else usual.text
        answer = web.Response(text=text, headers={"content-type": usual.headers["content-type"]})
        if self.scrape is None:
            return answer
        found = self.scrape(request, answer)
        return await found if asyncio.iscoroutine(found) else found

    async def _stream(
        self, request: web.Request, steps: Sequence[int], delivered: int, number: int
    ) -> web.StreamResponse:
        if number != self.drop:
            return await super()._stream(request, steps, delivered, number)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"data: {next(self._events(steps, delivered))}\n\n".encode())
        assert request.transport is not None
        request.transport.close()
        return response

    def _events(self, steps: Sequence[int], delivered: int) -> Iterator[str]:
        for text in super()._events(steps, delivered):
            if text == "[DONE]":
                yield text
                continue
            data = json.loads(text)
            self.chunk(data)
            yield json.dumps(data)


def lines(change: Callable[[str], str]) -> Callable[[str], str]:
    """A page of which every line with a sample is changed."""

    def page(text: str) -> str:
        return "".join(
            (line if line.startswith("#") else change(line)) + "\n" for line in text.splitlines()
        )

    return page


def accepted(change: Callable[[str], str]) -> Callable[[str], str]:
    """A page on which the value of accepted tokens is changed."""

    def line(text: str) -> str:
        if not text.startswith(ACCEPTED):
            return text
        series, _, value = text.rpartition(" ")
        return f"{series} {change(value)}"

    return lines(line)


def times(counter: str, factor: int) -> Callable[[str], str]:
    """A page with one counter multiplied."""

    def line(text: str) -> str:
        series, _, value = text.rpartition(" ")
        return f"{series} {factor * int(value)}" if text.startswith(counter) else text

    return lines(line)


def beside(value: int) -> Callable[[str], str]:
    """A page with another model of the same server on it."""

    def page(text: str) -> str:
        rows = [row for row in text.splitlines() if MODEL in row and "num_requests_" not in row]
        other = (row.replace(MODEL, "other").rpartition(" ")[0] for row in rows)
        return text + "".join(f"{row} {value}\n" for row in other)

    return page


def usage(value: Any) -> Callable[[dict[str, Any]], None]:
    def chunk(data: dict[str, Any]) -> None:
        if "usage" in data:
            data["usage"] = value

    return chunk


def choices(**fields: Any) -> Callable[[dict[str, Any]], None]:
    """Chunks with other fields in their choices; only those that are there are replaced."""

    def chunk(data: dict[str, Any]) -> None:
        for choice in data["choices"]:
            choice.update({name: value for name, value in fields.items() if name in choice})

    return chunk


def own_figures(value: Any) -> Callable[[dict[str, Any]], None]:
    def chunk(data: dict[str, Any]) -> None:
        if "metrics" in data:
            data["metrics"] = {"speculative_decoding": value}

    return chunk


async def cut_off(request: web.Request, answer: web.Response) -> web.StreamResponse:
    """A page in chunks, whose connection ends in the middle."""
    response = web.StreamResponse(headers={"content-type": "text/plain"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    assert answer.text is not None and request.transport is not None
    await response.write(answer.text[: len(answer.text) // 2].encode())
    request.transport.close()
    return response


async def shorter_than_said(request: web.Request, answer: web.Response) -> web.StreamResponse:
    """A page that ends before its content-length."""
    assert answer.text is not None and request.transport is not None
    size = {"content-type": "text/plain", "content-length": str(len(answer.text))}
    response = web.StreamResponse(headers=size)
    await response.prepare(request)
    await response.write(answer.text[: len(answer.text) // 2].encode())
    request.transport.close()
    return response


def elsewhere(request: web.Request, answer: web.Response) -> web.StreamResponse:
    """To the same page under another name of this machine."""
    if request.url.host == "localhost":
        return answer
    there = f"http://localhost:{request.url.port}/metrics"
    return web.Response(status=302, headers={"location": there})


def json_of(data: Any) -> Scrape:
    return lambda *_: web.json_response(data)


def compressed(_: web.Request, answer: web.Response) -> web.StreamResponse:
    answer.enable_compression(web.ContentCoding.gzip)
    return answer


def html(_: web.Request, __: web.Response) -> web.StreamResponse:
    return web.Response(text="<html>log in</html>", content_type="text/html")


def nothing(_: web.Request, __: web.Response) -> web.StreamResponse:
    return web.Response(status=204)
