"""Synthetic acceptance on real engines: it comes true, evals refuse it, or readiness is red."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.launched import launch, processes_that_name
from tests.engine.server import MODEL, Embedded, Server, free_port
from tests.engine.sglang_server import serve, speculative
from utils import records
from utils.acceptance import client, engines
from utils.acceptance.preflight import Target
from utils.evals import speedbench_al
from utils.evals.prompt_files import read_prompts
from utils.golden import export, registry
from utils.serving import accepted
from utils.verdicts import Outcome

N = 3
HERE = Path(__file__).parent
GOLDENS = registry.load(registry.FOLDER).goldens


@pytest.fixture(scope="module")
def forced(sglang: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A random head, of which nothing would be accepted, told to reach the AL of dsv4."""
    folder = tmp_path_factory.mktemp("forced")
    head, script = folder / "head", HERE / "make_random_eagle3.py"
    subprocess.run([sglang.python, script, sglang.model_path, head], check=True)
    golden = export.choose(GOLDENS, "dsv4", "on", N, {})
    how = export.forced("sglang", golden.acceptance_length, N)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in how.environment.items():
            patch.setenv(name, value)
        arguments = speculative("EAGLE3", N, head)
        with serve(sglang, folder, sglang.model_path, arguments) as server:
            yield server


def test_sglang_realises_the_golden(forced: Server, prompts: Path) -> None:
    adapter = engines.load("sglang")
    load = client.Load(
        base_url=forced.base_url,
        model=MODEL,
        sampling={"temperature": 0.0, "top_p": 1.0},
        chat_template_kwargs={},
        output_len=192,
        concurrency=4,
    )
    target = Target(forced.base_url, (), adapter, MODEL)
    opened = accepted.begin(target, "eagle3")
    answers = client.run(load, read_prompts(prompts, "coding", 8).prompts, adapter)
    counts = accepted.end(opened, answers).counts
    golden = export.choose(GOLDENS, "dsv4", "on", N, {})
    length = 1 + counts.accepted / counts.steps
    verdict = export.read_back(golden, length, counts.steps, "test")
    print(verdict.line())
    assert verdict.outcome is Outcome.PASS, verdict.line()


def test_evals_refuse_such_a_server(forced: Server, prompts: Path, tmp_path: Path) -> None:
    output = tmp_path / "al.json"
    status = speedbench_al.main(
        [
            "measure",
            *("--base-url", forced.base_url, "--engine", "sglang", "--model", MODEL),
            *("--model-prefix", "smollm2", "--thinking", "off", "--num-spec-tokens", str(N)),
            *("--prompts", str(prompts), "--num-prompts", "1", "--output", str(output)),
        ]
    )
    record = records.read_json(output)
    assert (status, record["reason"]) == (3, "forced_acceptance")
    assert "SGLANG_SIMULATE_ACC_LEN=2.49" in record["error"]


def test_vllm_on_a_cpu_cannot_and_readiness_says_so(
    engine: Embedded, prompts: Path, tmp_path: Path
) -> None:
    """/health is 200; the first generation ends the engine."""
    results, port = tmp_path / "results", free_port()
    run = launch(
        "smollm2_bf16_cpu_vllm_mtp",
        results,
        prompts,
        PORT=str(port),
        EVAL_ONLY="false",
        RUN_EVAL="false",
        SYNTHETIC_ACCEPTANCE="true",
        SERVER_READY_TIMEOUT_S="200",
    )
    output, _ = run.communicate()
    assert run.returncode == 3, output
    assert re.search(r"error: the server ended with status \d+ during ready", output)
    log = (results / "server.log").read_text()
    assert "Synthetic acceptance not supported with CPU sampling" in log
    assert not list(results.glob("serving_*.json"))
    assert processes_that_name(str(port)) == []
