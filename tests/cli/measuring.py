"""`speedbench_al measure` against a server that speculates by script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fakes.speculating import MODEL, SpeculatingServer
from utils import records
from utils.evals import speedbench_al

PROMPTS = 12
OWN = "vllm-0.29"  # its answers carry figures of their own


def run(server: SpeculatingServer, prompts: Path, output: Path, *more: str) -> tuple[int, Any]:
    """Status and record; of an option that is given twice the last counts."""
    status = speedbench_al.main(
        [
            "measure",
            *("--base-url", server.base_url, "--engine", server.dialect.engine, "--model", MODEL),
            *("--model-prefix", "smollm2", "--thinking", "off", "--num-spec-tokens", str(server.n)),
            *("--prompts", str(prompts), "--num-prompts", str(PROMPTS), "--output-len", "41"),
            *("--spec-method", "eagle3", "--output", str(output), *more),
        ]
    )
    return status, records.read_json(output)


def measured(
    faults: tuple[str, ...], prompts: Path, output: Path, *more: str, **server: Any
) -> tuple[int, Any]:
    with SpeculatingServer(faults=faults, **server).running() as running:
        return run(running, prompts, output, *more)
