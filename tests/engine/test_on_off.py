"""One recipe with and without speculation, on the real engine."""

from __future__ import annotations

import subprocess
import sys

from tests.engine.launched import Finished
from tests.engine.server import ROOT
from utils import records


def test_ngram_is_lossless_and_its_speed_up_reported(base: Finished, twin: Finished) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "utils.recipes", "compare", str(base.results), str(twin.results)],
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


def test_acceptance_meanwhile_and_the_engines_version_are_recorded(twin: Finished) -> None:
    (path,) = twin.results.glob("serving_*.json")
    acceptance = records.read_json(path)["acceptance"]
    assert 1.0 < acceptance["acceptance_length"] <= 4.0
    command = records.read_json(twin.results / "server_command.json")
    assert command["engine_version"].startswith("0.32.0")
