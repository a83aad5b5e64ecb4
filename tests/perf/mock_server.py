"""A fast OpenAI chat mock with a known schedule: chunk i of a stream is due at first + i · gap.

Runs under the engine's Python, which has uvloop. One timer wheel serves all streams, so that its
own cost a chunk is one write. Usage: mock_server.py PORT
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import json
import sys
import time
from typing import Any

import uvloop

CHUNKS, FIRST_S, GAP_S, TICK_S = 40, 0.05, 0.05, 0.001
WORDS = (" the", " sea", " sky", " red", " dog", " cat", " run", " sun")
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def _frame(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def _event(**fields: Any) -> bytes:
    chunk = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return _frame(b"data: " + json.dumps({**chunk, **fields}).encode() + b"\n\n")


def _choice(delta: dict[str, str], finish: str | None = None) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]


USAGE = {"prompt_tokens": 20, "completion_tokens": CHUNKS, "total_tokens": 20 + CHUNKS}
FRAMES = [_event(choices=_choice({"content": WORDS[i % 8]})) for i in range(CHUNKS)]
FRAMES[-1] += (
    _event(choices=_choice({}, "length"))
    + _event(choices=[], usage=USAGE)
    + _frame(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)

due: list[tuple[float, int, Mock, float, int]] = []
count = 0


class Mock(asyncio.Protocol):
    """One connection; a request has come whole once its body has."""

    def connection_made(self, transport: Any) -> None:
        self.transport, self.buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, blank, body = self.buffer.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not blank or len(body) < int(length or 0):
            return
        self.buffer = b""
        global count
        count += 1
        now = time.monotonic()
        self.transport.write(HEAD)
        heapq.heappush(due, (now + FIRST_S, count, self, now, 0))


def tick(loop: asyncio.AbstractEventLoop) -> None:
    global count
    now = time.monotonic()
    while due and due[0][0] <= now:
        _, _, mock, began, i = heapq.heappop(due)
        if mock.transport.is_closing():
            continue
        mock.transport.write(FRAMES[i])
        if i + 1 < CHUNKS:
            count += 1
            heapq.heappush(due, (began + FIRST_S + (i + 1) * GAP_S, count, mock, began, i + 1))
    loop.call_later(TICK_S, tick, loop)


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Mock, "127.0.0.1", port, backlog=4096)
    gc.freeze()
    tick(loop)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
