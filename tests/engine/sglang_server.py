"""A real SGLang on the CPU for tests: started and stopped by the project's own supervisor.

Its attention backends are named one by one: what `--attention-backend` alone would choose for a
CPU without AMX can't verify drafts. Two threads on a shared machine are slower than one. The CPU
paths verify greedily whatever the temperature, and the n-gram drafter keeps what it saw, over
requests and windows: the second time, the same prompts are accepted more.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.engine.server import MODEL, READY_TIMEOUT_S, Embedded, Server, free_port
from utils.serving import ready, supervise


def speculative(algorithm: str, n: int, draft: Path | None = None) -> list[str]:
    """N drafts in a chain: SGLang counts the bonus token's row as a draft token."""
    rows = ["--speculative-num-draft-tokens", str(n + 1)]
    if not draft:
        return ["--speculative-algorithm", algorithm, *rows]
    return [
        *("--speculative-algorithm", algorithm, "--speculative-draft-model-path", str(draft)),
        *("--speculative-num-steps", str(n), "--speculative-eagle-topk", "1", *rows),
    ]


@contextlib.contextmanager
def serve(
    engine: Embedded, folder: Path, model_path: Path, arguments: Sequence[str]
) -> Iterator[Server]:
    """Start SGLang, wait until it generates, stop it whatever happens."""
    port, log = free_port(), folder / "server.log"
    command = [
        *(str(engine.python), "-m", "sglang.launch_server", "--device", "cpu"),
        *("--model-path", str(model_path), "--served-model-name", MODEL),
        *("--host", "127.0.0.1", "--port", str(port), "--enable-metrics"),
        *("--attention-backend", "torch_native"),
        *("--prefill-attention-backend", "intel_amx", "--decode-attention-backend", "intel_amx"),
        *("--max-total-tokens", "8192", "--context-length", "2048", "--disable-radix-cache"),
        *arguments,
    ]
    environ = {
        **os.environ,
        "PATH": f"{engine.python.parent}{os.pathsep}{os.environ['PATH']}",
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_CACHE_DIR": str(engine.python.parents[2] / "cache"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    supervisor = subprocess.Popen(supervise.command_line(command, log=log), env=environ, cwd=folder)
    try:
        base_url = f"http://127.0.0.1:{port}"
        ready.wait(ready.Target(base_url, MODEL, "chat", supervisor.pid), READY_TIMEOUT_S)
        yield Server(base_url, supervisor.pid, log)
    finally:
        supervisor.terminate()
        supervisor.wait(timeout=10)
