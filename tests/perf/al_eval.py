"""Our AL eval against `vllm bench serve --dataset-name speed_bench`: one server, one prompt file.

Paired and in turn. Time outside the requests is the process's wall time less the time from the
first request to the last token.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.engine.server import MODEL, Embedded, Server, find_engine, serve, speculative
from tests.perf.measure import ROOT, Line
from utils.evals import speedbench

PAIRS = 3
PROMPTS, OUTPUT_LEN, CONCURRENCY = 32, 129, 4


@dataclass(frozen=True)
class Run:
    """One eval: seconds outside and inside the requests, and what it counted."""

    outside_s: float
    requests_s: float
    drafts: int
    accepted: int


def run() -> list[Line]:
    engine = find_engine()
    with tempfile.TemporaryDirectory() as folder:
        prompts = speedbench.prepare_proxy(Path(folder))
        arguments = speculative(
            method="ngram", num_speculative_tokens=3, prompt_lookup_min=2, prompt_lookup_max=4
        )
        with serve(engine, Path(folder), arguments) as server:
            pairs = [
                (run_ours(server, prompts), run_peer(engine, server, Path(folder)))
                for _ in range(PAIRS + 1)
            ][1:]  # the first one warms the server up
    for ours, peer in pairs:
        if (ours.drafts, ours.accepted) != (peer.drafts, peer.accepted):
            raise RuntimeError(f"the two disagree on what happened: {ours}, {peer}")
    outside = [median(r.outside_s for r in side) for side in zip(*pairs, strict=True)]
    requests = [median(r.requests_s for r in side) for side in zip(*pairs, strict=True)]
    return [
        Line("time outside the requests", outside[0], outside[1], "s", 1.0),
        Line("first request to last token", requests[0], requests[1], "s", 1.0, is_ratio=True),
    ]


def run_ours(server: Server, prompts: Path, count: int = PROMPTS) -> Run:
    output = prompts.with_name("al.json")
    command = [
        *(sys.executable, "-m", "utils.evals.speedbench_al", "measure", "--no-gate"),
        *("--base-url", server.base_url, "--engine", "vllm", "--model", MODEL),
        *("--model-prefix", "smollm2", "--thinking", "off", "--num-spec-tokens", "3"),
        *("--prompts", str(prompts), "--num-prompts", str(count)),
        *("--output-len", str(OUTPUT_LEN), "--concurrency", str(CONCURRENCY)),
        *("--output", str(output)),
    ]
    wall_s = _timed(command, os.environ)
    record = json.loads(output.read_text())
    rows = record["raw"]["requests"]
    first = min(row["started_s"] for row in rows)
    requests_s = max(row["started_s"] + row["e2e_s"] for row in rows) - first
    counts = record["verify_steps"], record["accepted_tokens"]
    return Run(wall_s - requests_s, requests_s, *counts)


def run_peer(engine: Embedded, server: Server, folder: Path, count: int = PROMPTS) -> Run:
    output, prompts = folder / "vllm_bench.json", speedbench.prepare_proxy(folder)
    shutil.copy(prompts, folder / "qualitative.jsonl")  # the name that vLLM looks for
    command = [
        *(str(engine.python.with_name("vllm")), "bench", "serve"),
        *("--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
        *("--base-url", server.base_url, "--model", MODEL, "--tokenizer", str(engine.model_path)),
        *("--dataset-name", "speed_bench", "--dataset-path", str(folder), "--skip-chat-template"),
        *("--speed-bench-category", "coding", "--speed-bench-output-len", str(OUTPUT_LEN)),
        *("--num-prompts", str(count), "--max-concurrency", str(CONCURRENCY)),
        *("--temperature", "0", "--disable-shuffle"),
        *("--save-result", "--result-filename", str(output)),
    ]
    wall_s = _timed(command, {**os.environ, "HF_HUB_OFFLINE": "1"})
    result = json.loads(output.read_text())
    counts = result["spec_decode_num_drafts"], result["spec_decode_accepted_tokens"]
    return Run(wall_s - result["duration"], result["duration"], *counts)


def _timed(command: Sequence[str], environ: os._Environ[str] | dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=True)
    return time.perf_counter() - started
