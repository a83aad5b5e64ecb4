"""An OpenAI-compatible server that "speculates" by script, so that the true AL is known.

Metrics in vLLM's dialect. Every fault is a name in `faults`; a new one is a line where it bites.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
PROMPT_TOKENS = 20


class SpeculatingServer:
    """State and handlers; `accept` is the probability that a draft token is accepted."""

    def __init__(
        self, *, n: int = 3, accept: float = 0.6, ranks: int = 1, faults: tuple[str, ...] = ()
    ) -> None:
        self.n, self.accept, self.faults = n, accept, set(faults)
        # A server that has been used before: only a window shows the truth.
        self.ranks = [self._fresh(1000) for _ in range(ranks)]
        self.requests = 0
        self.scrapes = 0
        self.created = 1.7e9
        self.bodies: list[dict[str, Any]] = []
        self.base_url = ""

    def _fresh(self, used: int) -> dict[str, Any]:
        return {
            "drafts": used,
            "drafted": used * self.n,
            "accepted": used,
            "per_pos": [used] + [0] * (self.n - 1),
            "requests": used,
            "prompt": used * PROMPT_TOKENS,
            "generated": used * 10,
        }

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "other" if "model" in self.faults else MODEL}]})

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def metrics(self, _: web.Request) -> web.Response:
        self.scrapes += 1
        if "scrape_503" in self.faults or ("scrape_503_once" in self.faults and self.scrapes == 2):
            return web.Response(status=503, text="busy")
        if "json_metrics" in self.faults:
            return web.json_response([])
        ended = self.requests > 1
        if "drift" in self.faults:
            self.ranks[0]["generated"] += 1
        if "rank_vanishes" in self.faults and ended:
            del self.ranks[1:]
        return web.Response(text="\n".join(self._lines(ended)) + "\n", content_type="text/plain")

    def _lines(self, ended: bool) -> Iterator[str]:
        restarted = "restart" in self.faults and ended
        yield f"process_start_time_seconds {self.created + restarted}"
        for rank, state in enumerate(self.ranks):
            label = f'engine="{rank}",model_name="{MODEL}"'
            yield f"vllm:num_requests_running{{{label}}} {1 if 'busy' in self.faults else 0}"
            yield f"vllm:num_requests_waiting{{{label}}} 0"
            for reason, count in (("stop", 0), ("length", state["requests"])):
                yield f'vllm:request_success_total{{{label},finished_reason="{reason}"}} {count}'
            yield f"vllm:prompt_tokens_total{{{label}}} {state['prompt']}"
            yield f"vllm:generation_tokens_total{{{label}}} {state['generated']}"
            if "spec_off" in self.faults:
                continue
            drafts = "NaN" if "nan" in self.faults else f"{state['drafts']:e}"
            yield f"vllm:spec_decode_num_drafts_total{{{label}}} {drafts}"
            yield f"vllm:spec_decode_num_drafts_created{{{label}}} {self.created}"
            yield f"vllm:spec_decode_num_draft_tokens_total{{{label}}} {state['drafted']}"
            yield f"vllm:spec_decode_num_accepted_tokens_total{{{label}}} {state['accepted']}"
            for position, count in enumerate(state["per_pos"]):
                yield (
                    "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                    f'{{{label},position="{position}"}} {count}'
                )

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests += 1
        self.bodies.append(body)
        if not body.get("stream"):
            if "generation_500" in self.faults:
                return web.Response(status=500, text="EngineDeadError")
            self._count(self.ranks[0], [1] * 3, None)
            return web.json_response({"usage": {"completion_tokens": 3}, "choices": []})
        number = self.requests - 1  # of the workload, from 1
        if "fail_20" in self.faults and number % 5 == 0:
            return web.Response(status=500, text="internal error")
        if "not_yet" in self.faults and number == 1:
            return web.Response(status=503, text="warming up")
        if "mute" in self.faults and number == 3:
            await asyncio.sleep(60)
        state = self.ranks[number % len(self.ranks)]
        sizes, overshoot = self._steps(body)
        self._count(state, sizes, overshoot)
        if "foreign" in self.faults and number == 2:
            self._count(state, [1, 2, 2], 0)
        if "reset" in self.faults and number == 3:
            state.update(self._fresh(0))
        return await self._stream(request, sizes, overshoot)

    def _steps(self, body: dict[str, Any]) -> tuple[list[int], int]:
        """Tokens per chunk, the prefill's first, and accepted tokens that the cap cut off."""
        seed = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()
        chance, limit = random.Random(seed), body["max_tokens"]
        if "empty" in self.faults:
            return [1], 0
        sizes = [1]
        while sum(sizes) < limit:
            accepted = 0
            while accepted < self.n and chance.random() < self.accept:
                accepted += 1
            sizes.append(accepted + 1)
        overshoot = sum(sizes) - limit
        sizes[-1] -= overshoot
        return sizes, overshoot

    def _count(self, state: dict[str, Any], sizes: list[int], overshoot: int | None) -> None:
        state["requests"] += 1
        state["prompt"] += PROMPT_TOKENS
        state["generated"] += sum(sizes)
        if overshoot is None:
            return
        steps = sizes[1:]
        if steps:
            steps[-1] += overshoot
        state["drafts"] += len(steps)
        state["drafted"] += len(steps) * self.n
        state["accepted"] += sum(size - 1 for size in steps)
        for position in range(self.n):
            state["per_pos"][position] += sum(size - 1 > position for size in steps)
        if "per_pos" in self.faults:
            state["per_pos"][-1] += 1

    async def _stream(
        self, request: web.Request, sizes: list[int], overshoot: int
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for data in self._events(sizes, overshoot):
            await response.write(f"data: {data}\n\n".encode())
        return response

    def _events(self, sizes: list[int], overshoot: int) -> Iterator[str]:
        chunks = sizes
        if "merged" in self.faults:
            chunks = [sizes[0], *(sum(sizes[i : i + 4]) for i in range(1, len(sizes), 4))]
        for size in chunks:
            yield json.dumps({"choices": [self._choice(size)]})
        if "undecodable" in self.faults:
            yield '{"choices": ['
        finish = {"index": 0, "delta": {}, "finish_reason": "length"}
        yield json.dumps({"choices": [finish]})
        if "no_usage" not in self.faults:
            yield json.dumps(self._last(sizes, overshoot))
        if "no_done" not in self.faults:
            yield "[DONE]"

    def _choice(self, size: int) -> dict[str, Any]:
        delta = {} if "empty" in self.faults else {"content": " word" * size}
        if "thinks" in self.faults:
            delta["reasoning_content"] = "hm"
        choice: dict[str, Any] = {"index": 0, "delta": delta}
        if "no_ids" not in self.faults:
            choice["token_ids"] = [7] * size
        return choice

    def _last(self, sizes: list[int], overshoot: int) -> dict[str, Any]:
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": sum(sizes)}
        if "own_figures" not in self.faults:
            return {"choices": [], "usage": usage}
        steps = [*sizes[1:-1], sizes[-1] + overshoot]
        figures = {
            "num_spec_steps": len(steps),
            "num_accepted_draft_tokens": sum(size - 1 for size in steps),
            "num_draft_tokens": len(steps) * self.n,
        }
        return {"choices": [], "usage": usage, "metrics": {"speculative_decoding": figures}}

    @contextmanager
    def running(self) -> Iterator[SpeculatingServer]:
        """Serve on a free port of 127.0.0.1, in a thread of its own."""
        loop = asyncio.new_event_loop()
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/version", self.version)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_post("/v1/chat/completions", self.chat)
        runner = web.AppRunner(app, shutdown_timeout=0.1)

        async def start() -> int:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            return int(runner.addresses[0][1])

        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        port = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        self.base_url = f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()
