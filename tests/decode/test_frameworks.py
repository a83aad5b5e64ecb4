"""Plain loop, Hugging Face Trainer, Accelerate and two DDP ranks: the same points for one model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.decode import support
from tests.engine.server import find_engine, free_port
from utils.decode_eval import history

SCRIPT = Path(__file__).with_name("frameworks.py")
KINDS = ("plain", "hf", "accelerate", "ddp")
STEPS = 8  # as in the script, which only the engine's Python can import


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every framework's folder, after its training; they train at the same time."""
    root = tmp_path_factory.mktemp("runs")
    folders = {kind: root / kind for kind in KINDS}
    for kind, folder in folders.items():
        folder.mkdir()
        modes = {"slow_s": 2.0, "once": str(folder / "once")} if kind == "ddp" else {}
        block = support.block(folder, modes, every_steps=100)
        (folder / "block.json").write_text(json.dumps(block))
    words = [find_engine().python, SCRIPT, root, str(free_port())]
    environ = support.environment(CUDA_VISIBLE_DEVICES="")
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-5000:]
    return folders


def test_the_same_snapshots_and_numbers(runs: dict[str, Path]) -> None:
    found = {}
    for kind, folder in runs.items():
        rows = history.read(folder / "decode_eval")
        found[kind] = [(r["step"], r["snapshot"]["sha256"], r["acceptance_length"]) for r in rows]
    assert [step for step, _, _ in found["plain"]] == [0, STEPS]
    assert len({digest for _, digest, _ in found["plain"]}) == 2
    assert all(rows == found["plain"] for rows in found.values()), found


def test_logged_through_the_framework_at_the_snapshots_step(runs: dict[str, Path]) -> None:
    for kind, folder in runs.items():
        rows = history.read(folder / "decode_eval")
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        told = [(line["train/tau_real_step"], line["train/tau_real"]) for line in lines]
        assert told == [(row["step"], row["acceptance_length"]) for row in rows], kind


def test_nothing_is_left(runs: dict[str, Path]) -> None:
    assert [support.engines(folder) for folder in runs.values()] == [[]] * len(runs)
