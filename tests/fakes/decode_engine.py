"""A stand-in for an engine that serves a draft: it speculates by script and can fail in every way.

    python -m tests.fakes.decode_engine --port P --name MODEL --draft FOLDER --n N

How many drafts it accepts follows from the draft's weights alone: equal snapshots give equal
numbers, and weights with b"accept=0.7" in them accept each draft with that chance. FAKE_DECODE
holds the failures as a JSON object:
  accept: chance, whatever the weights   ignore_term: true     never_ready: true
  hang_at, die_at, refuse_at: the n-th generation, the probe of readiness included
  refuse: status of every generation from refuse_at on (1)
  refuse_every: of every n-th alone      daemon: a worker that leaves session and parent
  steal: a file to write the port to; serve once <file>.done is there
  once: a file that is made; when it is there already, nothing fails
  slow_s: seconds of each generation     environ_to: a file to write the environment to
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.fakes.engine import start_worker
from tests.fakes.speculating import SpeculatingServer


class DecodeEngine(SpeculatingServer):
    """The speculating server with the failures of a process."""

    def __init__(self, name: str, modes: dict[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self.state.model = name
        self.modes = modes
        self.generations = 0

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": self.state.model, "owned_by": "vllm"}]})

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.generations += 1
        number = self.generations
        if number == self.modes.get("die_at"):
            print("EngineCore died: illegal memory access (pretend)", flush=True)
            os._exit(7)
        if number >= self.modes.get("hang_at", number + 1):
            await asyncio.sleep(3600)
        every, first = self.modes.get("refuse_every", 1), self.modes.get("refuse_at", 1)
        if "refuse" in self.modes and number >= first and number % every == 0:
            return web.Response(status=self.modes["refuse"], text="refused (pretend)")
        await asyncio.sleep(self.modes.get("slow_s", 0))
        if not body.get("stream"):  # readiness asks once, before anything is counted
            usage = {"completion_tokens": body["max_tokens"], "prompt_tokens": 1}
            return web.json_response({"choices": [], "usage": usage})
        return await super().generate(request)


def chance(draft: Path) -> float:
    """Of a draft token to be accepted, by the weights."""
    raw = b"".join(path.read_bytes() for path in sorted(draft.glob("*.safetensors")))
    if told := re.search(rb"accept=(0\.\d)", raw):
        return float(told[1])
    return 0.3 + 0.6 * int(hashlib.sha256(raw).hexdigest()[:8], 16) / 2**32


async def serve(engine: DecodeEngine, port: int) -> None:
    app = web.Application()
    app.router.add_get("/v1/models", engine.models)
    app.router.add_get("/version", engine.version)
    app.router.add_get("/metrics", engine.metrics)
    app.router.add_post("/v1/chat/completions", engine.generate)
    app.router.add_post("/v1/completions", engine.generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    await asyncio.Event().wait()


def let_steal(port: int, mark: Path) -> None:
    """Give somebody else the time to take the port."""
    mark.write_text(str(port))
    while not Path(f"{mark}.done").exists():
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--n", type=int, required=True)
    options = parser.parse_args()
    modes = json.loads(os.environ.get("FAKE_DECODE", "{}"))
    if "once" in modes:
        once = Path(modes["once"])
        modes = {} if once.exists() else modes
        once.touch()
    print(f"engine starts on {os.environ.get('CUDA_VISIBLE_DEVICES')!r}", flush=True)
    if "environ_to" in modes:
        Path(modes["environ_to"]).write_text(json.dumps(dict(os.environ)))
    if modes.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if modes.get("daemon"):
        start_worker("daemon")
    if modes.get("never_ready"):
        time.sleep(3600)
    if "steal" in modes:
        let_steal(options.port, Path(modes["steal"]))
    accept = modes.get("accept", chance(options.draft))
    engine = DecodeEngine(options.name, modes, n=options.n, accept=accept)
    asyncio.run(serve(engine, options.port))


if __name__ == "__main__":
    main()
