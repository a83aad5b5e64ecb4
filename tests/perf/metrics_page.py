"""Reading a /metrics page of 64 data-parallel ranks, against the parser's own time alone."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from tests.perf.measure import Line
from utils.acceptance.exposition import parse

RANKS, ROUNDS = 64, 5
# As many families as a vLLM page has, histograms included.
COUNTERS = 40
HISTOGRAMS, BUCKETS = 15, 20


def page() -> str:
    lines = []
    for family in range(COUNTERS):
        name = f"vllm:counter_{family}_total"
        lines.append(f"# TYPE {name[:-6]} counter")
        for rank in range(RANKS):
            lines.append(f'{name}{{engine="{rank}",model_name="org/model"}} {rank * family}.0')
    for family in range(HISTOGRAMS):
        name = f"vllm:seconds_{family}"
        lines.append(f"# TYPE {name} histogram")
        for rank in range(RANKS):
            label = f'engine="{rank}",model_name="org/model"'
            lines += [f'{name}_bucket{{{label},le="{i}.0"}} {i}.0' for i in range(BUCKETS)]
            lines += [f"{name}_count{{{label}}} 20.0", f"{name}_sum{{{label}}} 190.0"]
    return "\n".join(lines) + "\n"


def run() -> list[Line]:
    text = page()
    ours = _least(lambda: parse(text, "http://127.0.0.1/metrics"))
    peer = _least(lambda: [list(f.samples) for f in text_string_to_metric_families(text)])
    return [Line(f"{RANKS} ranks, {text.count(chr(10)):,} lines", ours, peer, "s")]


def _least(action: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        action()
        times.append(time.process_time() - began)
    return min(times)
