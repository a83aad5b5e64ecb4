"""An OpenAI-compatible server that "speculates" by script, so that the true AL is known.

It speaks the dialect of any engine and release in dialects.py. Every fault is a name in `faults`;
a new one is a line where it bites.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from tests.fakes.dialects import DIALECTS, PROMPT_TOKENS, Rank, State

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
CHUNK = "chat.completion.chunk"


class SpeculatingServer:
    """State and handlers; `accept` is the probability that a draft token is accepted.

    steps, accepted: the truth of the workload, the first request (a probe) left out. A server
    that has been `used` before shows it only between two scrapes.
    """

    def __init__(
        self,
        *,
        dialect: str = "vllm-0.10",
        n: int = 3,
        accept: float = 0.6,
        ranks: int = 1,
        used: int = 1000,
        faults: Sequence[str] = (),
    ) -> None:
        self.dialect, self.n, self.accept, self.faults = DIALECTS[dialect], n, accept, set(faults)
        fresh = [self._fresh(used) for _ in range(ranks)]
        self.state = State(MODEL, n, fresh, self.faults)
        self.requests = self.scrapes = self.steps = self.accepted = 0
        self.words = itertools.count(1)
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.base_url = ""

    def _fresh(self, used: int) -> Rank:
        return Rank([0, used] + [0] * (self.n - 1), used, used * PROMPT_TOKENS, used * 10)

    async def models(self, request: web.Request) -> web.Response:
        self.keys.add(request.headers.get("authorization"))
        model = {"id": "other" if "model" in self.faults else MODEL, "owned_by": self.dialect.owner}
        return web.json_response({"data": [model]})

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self.dialect.version})

    async def tokenize(self, request: web.Request) -> web.Response:
        (message,) = (await request.json())["messages"]
        return web.json_response({"count": 4 + len(message["content"].split())})

    async def info(self, _: web.Request) -> web.Response:
        lossy = {"speculative_accept_threshold_acc": 0.9} if "lossy" in self.faults else {}
        tokens = {"speculative_num_draft_tokens": self.n + 1}
        more = {"speculative_adaptive": "adaptive" in self.faults}
        return web.json_response({**(self.dialect.info or {}), **tokens, **more, **lossy})

    async def metrics(self, request: web.Request) -> web.Response:
        self.scrapes += 1
        if "scrape_503" in self.faults or ("scrape_503_once" in self.faults and self.scrapes == 2):
            return web.Response(status=503, text="busy")
        if "json_metrics" in self.faults:
            return web.json_response([])
        ended = self.requests > 1
        if "drift" in self.faults:
            self.state.ranks[0].generated += 1
            self.state.ranks[0].iterate()
        if "rank_vanishes" in self.faults and ended:
            del self.state.ranks[1:]
        if "restart" in self.faults and ended:
            self.state.started = 1.8e9
        text, content_type = self.dialect.pages[request.path](self.state)
        return web.Response(text=text, headers={"content-type": content_type})

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.keys.add(request.headers.get("authorization"))
        self.requests += 1
        self.bodies.append(body)
        number = self.requests - 1  # of the workload, from 1; the probe is 0
        if "generation_500" in self.faults and not number:
            return web.Response(status=500, text="EngineDeadError")
        if "fail_20" in self.faults and number and number % 5 == 0:
            return web.Response(status=500, text="internal error")
        if "says_key" in self.faults and number:
            return web.Response(status=401, text=f"bad {request.headers.get('authorization')}")
        if "not_yet" in self.faults and number == 1:
            return web.Response(status=503, text="warming up")
        if "mute" in self.faults and number == 3:
            await asyncio.sleep(60)
        if "slow" in self.faults:
            await asyncio.sleep(0.2)
        rank = self.state.ranks[number % len(self.state.ranks)]
        steps, delivered = self._speculate(body)
        self._count(rank, steps, delivered)
        if number:
            self.steps += len(steps)
            self.accepted += sum(steps)
        if "foreign" in self.faults and number == 2:
            self._count(rank, [1, 2], 6)
        if "reset" in self.faults and number == 3:
            self.state.ranks[0] = self._fresh(0)
        return await self._stream(request, steps, delivered, number)

    def _speculate(self, body: dict[str, Any]) -> tuple[list[int], int]:
        """Accepted drafts of each verify step, and tokens delivered up to the cap."""
        seed = hashlib.sha256(json.dumps(body.get("messages")).encode()).hexdigest()
        chance = random.Random(seed)
        limit = body["max_tokens"] if "max_tokens" in body else body["max_completion_tokens"]
        if "empty" in self.faults:
            return [], 1
        steps: list[int] = []
        while 1 + len(steps) + sum(steps) < limit:
            accepted = 0
            while accepted < self.n and chance.random() < self.accept:
                accepted += 1
            steps.append(accepted)
        return steps, limit

    def _count(self, rank: Rank, steps: Sequence[int], delivered: int) -> None:
        rank.requests += 1
        rank.prompt += PROMPT_TOKENS
        rank.generated += delivered
        rank.iterate()
        for accepted in steps:
            rank.histogram[accepted] += 1
            rank.iterate(
                numDraftTokens=self.n, numAcceptedTokens=accepted, numRequestsWithDraftTokens=1
            )
        rank.iterate(completed=1)

    async def _stream(
        self, request: web.Request, steps: Sequence[int], delivered: int, number: int
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for count, data in enumerate(self._events(steps, delivered)):
            await response.write(f"data: {data}\n\n".encode())
            if "drip" in self.faults:
                await asyncio.sleep(0.05)
            if "silent" in self.faults and number == 3 and count == 4:
                await asyncio.sleep(60)
        return response

    def _events(self, steps: Sequence[int], delivered: int) -> Iterator[str]:
        chunks = [1, *(1 + accepted for accepted in steps)]
        chunks[-1] -= sum(chunks) - delivered
        if "merged" in self.faults:
            chunks = [1, *(sum(chunks[i : i + 4]) for i in range(1, len(chunks), 4))]
        for size in chunks:
            yield json.dumps({"object": CHUNK, "choices": [self._choice(size)]})
        if "undecodable" in self.faults:
            yield '{"choices": ['
        last = {"index": 0, "delta": {}, "finish_reason": "length"}
        yield json.dumps({"object": CHUNK, "choices": [last]})
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": delivered}
        if "no_usage" not in self.faults:
            own = {} if "no_figures" in self.faults else self.dialect.last(steps, self.n)
            yield json.dumps({"object": CHUNK, "choices": [], "usage": usage, **own})
        if "no_done" not in self.faults:
            yield "[DONE]"

    def _choice(self, size: int) -> dict[str, Any]:
        text = "".join(f" {next(self.words) * 2654435761 % 2**32:x}" for _ in range(size))
        delta: dict[str, Any] = {} if "empty" in self.faults else {"content": text}
        if "thinks" in self.faults:
            delta["reasoning_content"] = "hm"
        if "tool_calls" in self.faults:
            delta = {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
        ids = {"token_ids": [7] * size} if self.dialect.ids and "no_ids" not in self.faults else {}
        if "no_chat" in self.faults:
            return {"index": 0, "text": text, **ids}
        return {"index": 0, "delta": delta, **ids}

    @contextmanager
    def running(self, port: int = 0) -> Iterator[SpeculatingServer]:
        """Serve on 127.0.0.1, on a free port unless one is named, in a thread of its own."""
        loop = asyncio.new_event_loop()
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        if self.dialect.version:
            app.router.add_get("/version", self.version)
        if self.dialect.info is not None:
            app.router.add_get("/server_info", self.info)
        for path in self.dialect.pages:
            app.router.add_get(path, self.metrics)
        app.router.add_post("/v1/chat/completions", self.generate)
        app.router.add_post("/v1/completions", self.generate)
        app.router.add_post("/tokenize", self.tokenize)
        runner = web.AppRunner(app, shutdown_timeout=0.1)

        async def start() -> int:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", port)
            await site.start()
            return int(runner.addresses[0][1])

        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        bound = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        self.base_url = f"http://127.0.0.1:{bound}"
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(_end(runner), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()


async def _end(runner: web.AppRunner) -> None:
    """Stop serving; requests that still sleep are ended too."""
    await runner.cleanup()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
