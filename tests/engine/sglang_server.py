"""A real SGLang on the CPU for tests: started and stopped by the project's own supervisor.

Both attention backends are named: the one that SGLang falls back to on a CPU without AMX can't
verify drafts. One thread, because two on a shared machine are slower; asleep when idle, because
it would spin. On a CPU SGLang verifies greedily, whatever the temperature. Stopped by a signal it
leaves files in /dev/shm.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.engine.server import MODEL, READY_TIMEOUT_S, Embedded, Server, free_port
from utils.serving import ready, supervise

ON_A_CPU = (
    *("--attention-backend", "torch_native"),
    *("--prefill-attention-backend", "intel_amx", "--decode-attention-backend", "intel_amx"),
    *("--max-total-tokens", "8192", "--context-length", "2048", "--sleep-on-idle"),
)


def environment(engine: Embedded) -> dict[str, str]:
    return {
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_CACHE_DIR": str(engine.python.parents[2] / "cache"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def speculative(
    algorithm: str, n: int, draft: Path | None = None, topk: int = 1, rows: int | None = None
) -> list[str]:
    """N drafts in a chain, or a tree of that depth; the bonus token has a row too."""
    verified = ["--speculative-num-draft-tokens", str(rows or n + 1)]
    if not draft:
        return ["--speculative-algorithm", algorithm, *verified]
    return [
        *("--speculative-algorithm", algorithm, "--speculative-draft-model-path", str(draft)),
        *("--speculative-num-steps", str(n), "--speculative-eagle-topk", str(topk), *verified),
    ]


def shared_files(pid: int) -> list[Path]:
    """Files in /dev/shm that the processes below `pid` have open, by any name: semaphores too."""
    inodes: set[int] = set()
    for child in supervise.descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            maps = Path(f"/proc/{child}/maps").read_text().splitlines()
            inodes.update(int(line.split()[4]) for line in maps if "/dev/shm/" in line)
    return [Path(entry.path) for entry in os.scandir("/dev/shm") if entry.inode() in inodes]


@contextlib.contextmanager
def serve(
    engine: Embedded, folder: Path, model_path: Path, arguments: Sequence[str]
) -> Iterator[Server]:
    """Start SGLang, wait until it generates, stop it whatever happens."""
    port, log = free_port(), folder / "server.log"
    command = [
        *(str(engine.python), "-m", "sglang.launch_server", "--device", "cpu"),
        *("--model-path", str(model_path), "--served-model-name", MODEL),
        *("--host", "127.0.0.1", "--port", str(port), "--enable-metrics", "--disable-radix-cache"),
        *ON_A_CPU,
        *arguments,
    ]
    path = f"{engine.python.parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, **environment(engine)}
    supervisor = subprocess.Popen(supervise.command_line(command, log=log), env=environ, cwd=folder)
    try:
        base_url = f"http://127.0.0.1:{port}"
        ready.wait(ready.Target(base_url, MODEL, "chat", supervisor.pid), READY_TIMEOUT_S)
        yield Server(base_url, supervisor.pid, log)
    finally:
        left_behind = shared_files(supervisor.pid)
        supervisor.terminate()
        supervisor.wait(timeout=10)
        for file in left_behind:
            file.unlink(missing_ok=True)
