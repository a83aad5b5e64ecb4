"""The real AIPerf against a server that fails: it ends well, our record doesn't."""

from __future__ import annotations

import os
from collections.abc import Iterator
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


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    try:
        install.aiperf_environment(os.environ)
    except UsageError as error:
        needs.missing(str(error))
    yield


def run(engine: Embedded, prompts: Path, folder: Path, *faults: str) -> tuple[int, Any]:
    with SpeculatingServer(faults=faults).running() as server:
        status = bench.main(
            [
                *("--base-url", server.base_url, "--model", MODEL, "--model-prefix", "smollm2"),
                *("--prompts-dir", str(prompts.parent), "--isl", str(PROMPT_TOKENS), "--osl", "8"),
                *("--concurrency", "2", "--client", "aiperf"),
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
