"""A real vLLM on the CPU for tests: started by the project's own supervisor, stopped by it too."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils.serving import ready, supervise

ROOT = Path(__file__).parents[2]
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
READY_TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Embedded:
    """The engine that `make setup` installed, or the one that ENGINE_PYTHON names."""

    python: Path
    model_path: Path


@dataclass(frozen=True)
class Server:
    """A running server; pid is its supervisor's."""

    base_url: str
    pid: int
    log: Path


def find_engine(name: str = "engine") -> Embedded:
    command = [sys.executable, "-m", "utils.embedded_engine.install", "--print-env", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # Fail, never skip: a run without the real engine has proven nothing.
    assert done.returncode == 0, done.stderr
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return Embedded(Path(found["ENGINE_PYTHON"]), Path(found["MODEL_PATH"]))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def speculative(**config: Any) -> list[str]:
    return [
        "--speculative-config",
        json.dumps(config),
        "--enable-per-request-metrics",
        "--per-request-spec-decode-metrics",
        "summary",
    ]


@contextlib.contextmanager
def serve(engine: Embedded, folder: Path, arguments: Sequence[str]) -> Iterator[Server]:
    """Start vLLM, wait until it generates, stop it whatever happens."""
    port, log = free_port(), folder / "server.log"
    command = [
        *(str(engine.python.with_name("vllm")), "serve", str(engine.model_path)),
        *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", "2048", "--max-num-seqs", "32"),
        *("--enforce-eager", "--no-enable-prefix-caching"),
        *arguments,
    ]
    environ = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    supervisor = subprocess.Popen(supervise.command_line(command, log=log), env=environ)
    try:
        base_url = f"http://127.0.0.1:{port}"
        ready.wait(ready.Target(base_url, MODEL, "chat", supervisor.pid), READY_TIMEOUT_S)
        yield Server(base_url, supervisor.pid, log)
    finally:
        supervisor.terminate()
        supervisor.wait(timeout=10)
