"""The example, shortened, for real: a head trains, vLLM measures it, the referee agrees."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.engine.server import ROOT, Embedded
from utils import records
from utils.decode_eval import history, plot, weights
from utils.evals import al_record

N = 3
PROMPTS, EPOCHS, TOKENS = 32, 2, 32
LAST = PROMPTS * EPOCHS


def example(engine: Embedded, output: Path) -> None:
    words = ["--prompts", PROMPTS, "--epochs", EPOCHS, "--every", LAST, "--answer-tokens", 96]
    words += ["--eval-prompts", 6, "--eval-tokens", TOKENS]
    script = ROOT / "examples" / "train_eagle3_cpu.py"
    command = [engine.python, script, "--target", engine.model_path, "--output", output]
    done = subprocess.run(
        [*command, *map(str, words)], cwd=output, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def trained(engine: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("example")
    example(engine, output)
    return output


def test_the_real_length_rises_from_one(trained: Path) -> None:
    first, last = history.read(trained)
    assert [(row["step"], row["outcome"]) for row in (first, last)] == [
        (0, "measured"),
        (LAST, "measured"),
    ]
    assert first["acceptance_length"] < 1.05  # an untrained head is right by luck alone
    assert last["lower"] > first["upper"]
    for row in (first, last):
        (one,) = row["sets"]
        assert (one["prompts"], one["completed"], len(one["per_position"])) == (6, 6, N)
        assert 1 < row["tau_sim"] < N + 1
        record = al_record.read(trained / f"step_{row['step']}" / one["record"])
        assert al_record.figures(record).acceptance_length == row["acceptance_length"]
        assert record["speculation"]["method"] == "eagle3"


def test_the_best_weights_are_kept_and_no_others(trained: Path) -> None:
    assert os.readlink(trained / "best") == f"step_{LAST}"
    (kept,) = trained.glob("step_*/model/consolidated")
    row = history.measured(history.read(trained))[-1]
    assert weights.digest_of(weights.read(kept)) == row["snapshot"]["sha256"]


def test_the_plot_is_drawn(trained: Path) -> None:
    assert plot.main([str(trained)]) == 0
    assert (trained / "tau.png").stat().st_size > 10_000


def test_started_again_it_repeats_nothing(engine: Embedded, trained: Path) -> None:
    before = (trained / history.FILE).read_text()
    example(engine, trained)
    assert (trained / history.FILE).read_text() == before


def test_the_referee_agrees_with_the_engine(engine: Embedded, trained: Path) -> None:
    """Its output is the target's own on every prompt, and its AL in the engine's interval."""
    step = trained / f"step_{LAST}"
    words: list[str | Path] = [
        *("--target", engine.model_path, "--draft", step / "model" / "consolidated"),
        *("--prompts", trained / "prompts" / "default.jsonl", "-n", str(N)),
        *("--max-new-tokens", str(TOKENS), "--against", step / "al_default.json"),
        *("--output", trained / "referee.json"),
    ]
    done = subprocess.run(
        [engine.python, "-m", "utils.decode_eval", "referee", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # a token at a time, two threads only wait
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = records.read_json(trained / "referee.json")
    assert [row["same"] for row in record["rows"]] == [True] * 6
