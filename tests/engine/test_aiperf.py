"""The real AIPerf against a server that fails: it ends well, our record doesn't."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.engine.server import Embedded
from tests.fakes.dialects import PROMPT_TOKENS
from tests.fakes.speculating import MODEL, SpeculatingServer
from utils import records
from utils.embedded_engine import install
from utils.errors import UsageError
from utils.serving import bench


def require_aiperf() -> None:
    """A gigabyte, which `make setup` doesn't install."""
    try:
        install.aiperf_environment(os.environ)
    except UsageError as error:
        needs.missing(str(error))


def run(
    engine: Embedded,
    prompts: Path,
    folder: Path,
    *faults: str,
    client: str = "aiperf",
    osl: int = 8,
) -> tuple[int, Any]:
    require_aiperf()
    with SpeculatingServer(faults=faults).running() as server:
        status = bench.main(
            [
                *("--base-url", server.base_url, "--model", MODEL, "--model-prefix", "smollm2"),
                *("--prompts-dir", str(prompts.parent), "--isl", str(PROMPT_TOKENS)),
                *("--osl", str(osl)),
                *("--concurrency", "2", "--client", client),
                *("--tokenizer", str(engine.model_path), "--output", str(folder / "out.json")),
            ]
        )
    return status, records.read_json(folder / "out.json")


def test_a_fifth_of_failures_is_red_with_its_count(
    engine: Embedded, prompts: Path, tmp_path: Path
) -> None:
    status, result = run(engine, prompts, tmp_path, "fail_20")
    assert status == 3
    assert (result["requested"], result["completed"], result["failed"]) == (20, 16, 4)
    assert result["first_error"] == "Internal Server Error: internal error"
    assert result["total_output_tokens"] == 16 * 8


def test_nothing_but_failures_is_a_record_too(
    engine: Embedded, prompts: Path, tmp_path: Path
) -> None:
    status, result = run(engine, prompts, tmp_path, "says_key")
    assert status == 3
    assert (result["requested"], result["completed"], result["failed"]) == (20, 0, 20)
    assert (result["e2e_s"], result["total_output_tokens"]) == (None, 0)
    assert result["first_error"].startswith("Unauthorized")


@pytest.mark.alone
def test_both_clients_measure_the_same_of_a_server_that_keeps_time(
    engine: Embedded, prompts: Path, tmp_path: Path
) -> None:
    """Every chunk comes 50 ms after the one before; what is accepted hangs on the prompt alone."""
    found = []
    for client in bench.CLIENTS:
        (tmp_path / client).mkdir()
        status, result = run(engine, prompts, tmp_path / client, "drip", client=client, osl=48)
        assert status == 0
        found.append(result)
    ours, theirs = found
    assert theirs["total_output_tokens"] == ours["total_output_tokens"]
    for latency in ("e2e_s", "chunk_gap_s"):
        assert theirs[latency]["p50"] == pytest.approx(ours[latency]["p50"], rel=0.03)
