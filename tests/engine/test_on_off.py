"""One recipe with and without speculation on the real engine, and two clients of one server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.server import MODEL, ROOT, Embedded, Server, free_port, serve, speculative
from tests.engine.test_aiperf import require_aiperf
from utils import records
from utils.acceptance.meter import get
from utils.acceptance.window import local_session
from utils.recipes import lossless
from utils.serving import bench, greedy
from utils.verdicts import Outcome

SAME = 0.03
REQUESTS = 12


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
    # All but a draft or two that a numeric tie tips over.
    assert 0.99 * 3 * speculated["steps"] <= speculated["accepted"] <= 3 * speculated["steps"]


def measure(server: Server, engine: Embedded, prompts: Path, output: Path, client: str) -> Any:
    """The record, and the server's own mean latency of the same requests, warm-up left out."""
    served: list[tuple[float, float]] = []
    send = bench._run

    def framed(*arguments: Any) -> Any:
        served.append(latencies(server))
        found = send(*arguments)
        deadline = time.monotonic() + 10
        while latencies(server)[1] < served[0][1] + REQUESTS and time.monotonic() < deadline:
            time.sleep(0.1)
        served.append(latencies(server))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "_run", framed)
        status = bench.main(
            [
                *("--base-url", server.base_url, "--model", MODEL, "--model-prefix", "smollm2"),
                *("--prompts-dir", str(prompts.parent), "--isl", "64", "--osl", "96"),
                *("--concurrency", "2", "--prompts-per-slot", str(REQUESTS // 2)),
                *("--client", client, "--tokenizer", str(engine.model_path)),
                *("--output", str(output)),
            ]
        )
    assert status == 0
    seconds, requests = (after - before for before, after in zip(*served, strict=True))
    assert requests == REQUESTS
    return records.read_json(output), seconds / requests


def latencies(server: Server) -> tuple[float, float]:
    """(seconds, requests) by the server's own histogram."""
    text = get(local_session(), f"{server.base_url}/metrics").text
    totals = dict.fromkeys(("_sum", "_count"), 0.0)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            end = sample.name.removeprefix("vllm:e2e_request_latency_seconds")
            if end in totals:
                totals[end] += sample.value
    return totals["_sum"], totals["_count"]


def test_our_client_and_aiperf_agree(
    self_draft: Server, engine: Embedded, prompts: Path, tmp_path: Path
) -> None:
    """On tokens with each other; on latency with the server, as no two runs are equally fast."""
    require_aiperf()
    totals = []
    for client in bench.CLIENTS:
        output = tmp_path / f"{client}.json"
        found, latency_s = measure(self_draft, engine, prompts, output, client)
        assert found["client"] == client
        assert found["e2e_s"]["mean"] == pytest.approx(latency_s, rel=SAME)
        totals.append((found["total_input_tokens"], found["total_output_tokens"]))
    assert totals[1] == pytest.approx(totals[0], rel=SAME)
