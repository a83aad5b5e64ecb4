"""The AL command on a real vLLM, and what three instruments counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engine.server import MODEL, Server
from utils import records
from utils.evals import speedbench_al

N = 3
# One token of the prefill and 16 full steps of the self-draft: no request overshoots.
OUTPUT_LEN = 1 + 16 * (N + 1)


def measure(server: Server, prompts: Path, output: Path, *more: str) -> tuple[int, Any]:
    """Run the command; returns its status and the record."""
    status = speedbench_al.main(
        [
            "measure",
            *("--base-url", server.base_url, "--engine", "vllm", "--model", MODEL),
            *("--model-prefix", "smollm2", "--thinking", "off", "--num-spec-tokens", str(N)),
            *("--prompts", str(prompts), "--num-prompts", "8", "--output-len", str(OUTPUT_LEN)),
            *("--concurrency", "4", "--server-pid", str(server.pid), "--output", str(output)),
            *more,
        ]
    )
    return status, records.read_json(output)


def by_three_instruments(record: Any) -> list[tuple[int, int]]:
    """(accepted, steps) by the counters, by the requests' own figures, by stream chunks.

    A server that is held up merges the chunks of two steps; such answers' chunks count nothing.
    """
    rows = record["raw"]["requests"]
    streams = [row for row in rows if row["chunks"] > row["spec"]["steps"]]
    assert 2 * len(streams) >= len(rows), "too few streams say anything"
    return [
        (record["accepted_tokens"], record["verify_steps"]),
        (sum(r["spec"]["accepted"] for r in rows), sum(r["spec"]["steps"] for r in rows)),
        (
            sum(r["completion_tokens"] - r["chunks"] for r in streams),
            sum(r["chunks"] - 1 for r in streams),
        ),
    ]
