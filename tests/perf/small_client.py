"""The yardstick: the smallest streaming client that measures anything, aiohttp and json alone.

Usage: small_client.py BASE_URL STREAMS REQUESTS; prints a JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from statistics import median

import aiohttp

E2E_S: list[float] = []


async def ask(session: aiohttp.ClientSession, url: str, number: int) -> None:
    body = {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 40,
        "messages": [{"role": "user", "content": f"Request {number}: a text about the sea."}],
    }
    sent, last, rest = time.perf_counter(), 0.0, b""
    async with session.post(url, json=body) as response:
        async for data in response.content.iter_any():
            now = time.perf_counter()
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if event != b"data: [DONE]":
                    choices = json.loads(event[6:])["choices"]
                    if choices and choices[0]["delta"].get("content"):
                        last = now
    E2E_S.append(last - sent)


async def main(base_url: str, streams: int, requests: int) -> None:
    numbers = iter(range(requests))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def worker() -> None:
            for number in numbers:
                await ask(session, f"{base_url}/v1/chat/completions", number)

        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(worker() for _ in range(streams)))
    duration_s = time.perf_counter() - began
    cpu_s = time.process_time() - cpu
    print(json.dumps({"e2e_s": median(E2E_S), "cpu_s": cpu_s, "duration_s": duration_s}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
