"""A golden curve of the demo's n-gram recipe on the real vLLM, killed once on its way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine.launched import processes_that_name
from tests.engine.server import ROOT, Embedded, free_port
from tests.waiting import until
from utils import records

SCRIPT = ROOT / "benchmarks" / "speedbench" / "collect.sh"
# One request at a time: in a batch, near ties between two tokens are decided by its shape.
MEASURE = ("--num-prompts", "4", "--output-len", "49", "--concurrency", "1")


@pytest.fixture
def environment(engine: Embedded, prompts: Path) -> dict[str, str]:
    return {
        **os.environ,
        "ENGINE_PYTHON": str(engine.python),
        "MODEL_PATH": str(engine.model_path),
        "HARNESS_PYTHON": sys.executable,
        "SPEEDBENCH_DIR": str(prompts.parent),
        "PORT": str(free_port()),
    }


def collect(folder: Path, environment: dict[str, str], *ns: str) -> subprocess.Popen[str]:
    words = ["smollm2", "--output-dir", str(folder), "--hardware", "a test", "--num-spec-tokens"]
    return subprocess.Popen(
        ["bash", str(SCRIPT), *words, *ns, "--", *MEASURE],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def entries(folder: Path) -> dict[int, Any]:
    """Runs of a candidate by N, without what tells one from another."""
    data = yaml.safe_load((folder / "candidate" / "smollm2_ngram.yaml").read_text())
    for entry in data["entries"]:
        for run in entry["runs"]:
            del run["run_id"], run["date"]
    return {entry["num_speculative_tokens"]: entry for entry in data["entries"]}


def test_a_killed_collection_ends_as_an_uninterrupted_one(
    environment: dict[str, str], tmp_path: Path
) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    run = collect(killed, environment, "1", "2")
    started = killed / "off_mtp2_run1" / "attempt1" / "server_command.json"
    while run.poll() is None and not started.exists():
        time.sleep(0.1)
    run.send_signal(signal.SIGKILL)
    output, _ = run.communicate()
    assert run.returncode == -signal.SIGKILL, output
    until(lambda: not processes_that_name(environment["PORT"]), 10)

    run = collect(killed, environment, "1", "2")
    output, _ = run.communicate()
    assert run.returncode == 0, output
    assert "off N=1 run 1: AL" in output
    assert output.count("kept from an earlier call") == 1
    cells = records.read_json(killed / "collection.json")["cells"]
    assert [cell["attempts"] for cell in cells] == [1, 2]

    run = collect(whole, environment, "2")
    output, _ = run.communicate()
    assert run.returncode == 0, output
    assert entries(killed)[2] == entries(whole)[2]
    rows = [run["rows"] for entry in entries(killed).values() for run in entry["runs"]]
    assert [len(each) for each in rows] == [4, 4]
    assert processes_that_name(environment["PORT"]) == []
