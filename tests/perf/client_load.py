"""Our client against the smallest possible one, on a mock with a known schedule, a core each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tests.engine.server import find_engine, free_port
from tests.perf.measure import ROOT, Line

HERE = Path(__file__).parent
STREAMS = (64, 256, 1024)
ROUNDS = 5
# What a stream of the mock takes when nobody adds anything: 0.05 s to its first of 40 chunks.
SCHEDULE_S = 0.05 + 39 * 0.05
MOST_WALL_S = 1000 / 470  # 470 requests a second


def run() -> list[Line]:
    port = free_port()
    cores = sorted(os.sched_getaffinity(0))
    command = [str(find_engine().python), str(HERE / "mock_server.py"), str(port)]
    mock = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=_pinned(cores[0]))
    try:
        assert mock.stdout
        mock.stdout.readline()
        return [line for streams in STREAMS for line in _compare(port, streams, cores[-1])]
    finally:
        mock.terminate()
        mock.wait(10)


def _compare(port: int, streams: int, core: int) -> list[Line]:
    requests = 3 * streams
    pairs = [
        [_client(name, port, streams, requests, core) for name in ("our_client", "small_client")]
        for _ in range(ROUNDS)
    ]
    added = [1e3 * (median(p[i]["e2e_s"] for p in pairs) - SCHEDULE_S) for i in (0, 1)]
    cpu = [1e3 / requests * median(p[i]["cpu_s"] for p in pairs) for i in (0, 1)]
    lines = [
        Line(f"{streams} streams, added latency", *added, "ms", 1.0, is_ratio=True),
        Line(f"{streams} streams, CPU per 1,000 requests", *cpu, "s", 1.0, is_ratio=True),
    ]
    if streams == STREAMS[-1]:
        wall = [1e3 / requests * median(p[i]["duration_s"] for p in pairs) for i in (0, 1)]
        lines.append(Line(f"{streams} streams, wall per 1,000 requests", *wall, "s", MOST_WALL_S))
    return lines


def _client(name: str, port: int, streams: int, requests: int, core: int) -> dict[str, float]:
    arguments = [f"http://127.0.0.1:{port}", str(streams), str(requests)]
    done = subprocess.run(
        [sys.executable, "-m", f"tests.perf.{name}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=_pinned(core),
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _pinned(core: int) -> Callable[[], None]:
    return lambda: os.sched_setaffinity(0, {core})
