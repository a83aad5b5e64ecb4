"""One recipe with and without speculation on the real engine, and two clients of one server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.engine.server import MODEL, ROOT, Embedded, Server, free_port, serve, speculative
from utils import records
from utils.embedded_engine import install
from utils.errors import UsageError
from utils.recipes import lossless
from utils.serving import bench, greedy
from utils.verdicts import Outcome

SAME = 0.03


def run_recipe(name: str, results: Path, prompts: Path) -> str:
    environ = {
        **os.environ,
        "HARNESS_PYTHON": sys.executable,
        "RESULT_DIR": str(results),
        "SPEEDBENCH_DIR": str(prompts.parent),
        "PORT": str(free_port()),
        "LOSSLESS": "true",
        "OSL": "64",
    }
    command = ["bash", str(ROOT / "runners" / "launch_local.sh"), name]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def pair(prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Result directories of the CPU recipe and its n-gram twin."""
    folder = tmp_path_factory.mktemp("pair")
    for name in ("smollm2_bf16_cpu_vllm", "smollm2_bf16_cpu_vllm_mtp"):
        run_recipe(name, folder / name, prompts)
    return folder / "smollm2_bf16_cpu_vllm", folder / "smollm2_bf16_cpu_vllm_mtp"


def test_ngram_is_lossless_and_its_speed_up_reported(pair: tuple[Path, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "utils.recipes", "compare", *map(str, pair)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("PASS")]
    checks = ["differences", "accuracy_difference", "speed_up", "broken_partings"]
    assert [next(c for c in checks if c in line) for line in lines] == checks
    assert "+ --speculative-config" in done.stdout


def test_acceptance_meanwhile_and_the_engines_version_are_recorded(
    pair: tuple[Path, Path],
) -> None:
    _, twin = pair
    (path,) = twin.glob("serving_*.json")
    acceptance = records.read_json(path)["acceptance"]
    assert 1.0 < acceptance["acceptance_length"] <= 4.0
    command = records.read_json(twin / "server_command.json")
    assert command["engine_version"].startswith("0.32.0")


@pytest.fixture(scope="module")
def self_draft(engine: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    arguments = speculative(
        method="draft_model", model=str(engine.model_path), num_speculative_tokens=3
    )
    with serve(engine, tmp_path_factory.mktemp("self"), arguments) as server:
        yield server


def test_the_self_draft_is_lossless(
    pair: tuple[Path, Path], self_draft: Server, prompts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "greedy.json"
    greedy.main(
        [
            *("--base-url", self_draft.base_url, "--model", MODEL, "--model-prefix", "smollm2"),
            *("--spec-method", "draft_model", "--prompts-dir", str(prompts.parent)),
            *("--output", str(output)),
        ]
    )
    speculated = lossless.read(output)
    _, verdict = lossless.judge(lossless.read(pair[0] / greedy.FILE), speculated)
    assert verdict.outcome is Outcome.PASS, verdict.line()
    assert speculated["accepted"] == 3 * speculated["steps"]


def measure(server: Server, engine: Embedded, prompts: Path, output: Path, client: str) -> Any:
    status = bench.main(
        [
            *("--base-url", server.base_url, "--model", MODEL, "--model-prefix", "smollm2"),
            *("--prompts-dir", str(prompts.parent), "--isl", "128", "--osl", "32"),
            *("--concurrency", "2", "--prompts-per-slot", "12", "--client", client),
            *("--tokenizer", str(engine.model_path), "--output", str(output)),
        ]
    )
    assert status == 0
    return records.read_json(output)


def test_our_client_and_aiperf_agree(
    self_draft: Server, engine: Embedded, prompts: Path, tmp_path: Path
) -> None:
    try:
        install.aiperf_environment(os.environ)
    except UsageError as error:
        needs.missing(str(error))
    ours, theirs = (
        measure(self_draft, engine, prompts, tmp_path / f"{client}.json", client)
        for client in bench.CLIENTS
    )
    assert (ours["client"], theirs["client"]) == ("specgate", "aiperf")
    for tokens in ("total_input_tokens", "total_output_tokens"):
        assert theirs[tokens] == pytest.approx(ours[tokens], rel=SAME)
    assert theirs["e2e_s"]["p50"] == pytest.approx(ours["e2e_s"]["p50"], rel=SAME)
