"""A stand-in for `vllm serve`: OpenAI API, health, metrics, and ways to fail.

FAKE_ENGINE holds the failures as a JSON object:
  die_at_start: exit status            die_on_request: [n, exit status] at the n-th generation
  models: other names to list          cold: so many generations answer 503
  silent: never listen                 refuse: status of every generation
  empty: generations without a token   workers: list of "stubborn", "daemon", "polite"
  warmup_until: 503 until this file exists
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="{model}"}} 0.0
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="{model}"}} {drafts}.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="{model}"}} {accepted}.0
"""


class Engine(ThreadingHTTPServer):
    """The server with its state; `modes` are the failures asked for."""

    daemon_threads = True

    def __init__(self, port: int, model: str, modes: dict[str, Any]) -> None:
        self.model = model
        self.modes = modes
        self.refused = 0
        self.generations = 0
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Engine
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def reply(self, status: int, body: object) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        engine = self.server
        if self.path == "/v1/models":
            names = engine.modes.get("models", [engine.model])
            self.reply(200, {"object": "list", "data": [{"id": name} for name in names]})
        elif self.path == "/metrics":
            n = engine.generations
            text = METRICS.format(model=engine.model, drafts=n * 10, accepted=n * 13)
            self.reply(200, text)
        else:
            self.reply(200, "")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        engine = self.server
        warm = Path(engine.modes.get("warmup_until", "/")).exists()
        with engine.lock:
            engine.refused += 1
        if not warm or engine.refused <= engine.modes.get("cold", 0):
            self.reply(503, {"error": "model is loading"})
            return
        if "refuse" in engine.modes:
            self.reply(engine.modes["refuse"], {"error": "no chat template"})
            return
        with engine.lock:
            engine.generations += 1
            number, status = engine.modes.get("die_on_request", (0, 0))
            if engine.generations == number:
                self.connection.shutdown(socket.SHUT_RDWR)
                time.sleep(0.3)
                print("EngineCore died: illegal memory access (pretend)", flush=True)
                os._exit(status)
        tokens = 0 if engine.modes.get("empty") else 3
        choice = {"index": 0, "message": {"role": "assistant", "content": "hello"}}
        self.reply(200, {"choices": [choice], "usage": {"completion_tokens": tokens}})


def start_worker(kind: str) -> None:
    """A worker that ignores TERM; a "daemon" also leaves session and parent and is renamed.

    A "polite" one ends on TERM, in a session of its own.
    """
    if kind == "polite":
        subprocess.Popen(["sleep", "300"], start_new_session=True)
        return
    if kind == "daemon":
        if os.fork():
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        ctypes.CDLL(None).prctl(15, b"VLLM::EngineCor", 0, 0, 0)  # PR_SET_NAME
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
    subprocess.Popen([sys.executable, "-c", code])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs=2, metavar="serve MODEL")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", required=True)
    options, _ = parser.parse_known_args(argv)
    modes = json.loads(os.environ.get("FAKE_ENGINE", "{}"))
    print("engine starts", flush=True)
    for kind in modes.get("workers", []):
        start_worker(kind)
    if "die_at_start" in modes:
        print("CUDA out of memory (pretend)", flush=True)
        return int(modes["die_at_start"])
    if modes.get("silent"):
        time.sleep(300)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Engine(options.port, options.served_model_name, modes).serve_forever()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
