"""`vllm serve` for tests of the collector: speculates by script, N by its command line.

FAKE_COLLECTING holds what goes wrong as a JSON object, by cell (its N as text, or "all"):
  faults: of SpeculatingServer      accept: probability that a draft token is accepted
  log: a line for the log           quiet: write no log      die: exit status at start
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from typing import Any

from aiohttp import web

from tests.fakes.speculating import SpeculatingServer


class Server(SpeculatingServer):
    """Also answers the readiness check, which doesn't stream."""

    async def generate(self, request: web.Request) -> web.StreamResponse:
        if (await request.json()).get("stream"):
            return await super().generate(request)
        message = {"role": "assistant", "content": "hello"}
        return web.json_response(
            {"choices": [{"index": 0, "message": message}], "usage": {"completion_tokens": 3}}
        )


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("words", nargs=2, metavar="serve MODEL")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--speculative-config", type=json.loads, required=True)
    options, _ = parser.parse_known_args()
    n = options.speculative_config["num_speculative_tokens"]
    told: dict[str, Any] = json.loads(os.environ.get("FAKE_COLLECTING", "{}"))
    modes = {**told.get("all", {}), **told.get(str(n), {})}
    if not modes.get("quiet"):
        print(modes.get("log", "engine starts"), flush=True)
    if "die" in modes:
        return int(modes["die"])
    server = Server(
        dialect="vllm-0.29", n=n, accept=modes.get("accept", 0.6), faults=modes.get("faults", ())
    )
    with server.running(options.port):
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
