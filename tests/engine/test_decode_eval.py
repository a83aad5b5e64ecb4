"""The example, shortened, for real: a head trains, engines measure it, the referee agrees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.decode_torch import files
from tests.engine import sglang_server
from tests.engine.server import ROOT, Embedded
from utils import records
from utils.decode_eval import history, plot, weights
from utils.decode_eval.converters import eagle3
from utils.evals import al_record
from utils.records import Json

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
    assert first["acceptance_length"] == 1.0  # an untrained head drafts what no answer holds
    assert last["lower"] > first["upper"]
    for row in (first, last):
        (one,) = row["sets"]
        assert (one["prompts"], one["completed"], len(one["per_position"])) == (6, 6, N)
        assert 1 <= row["tau_sim"] < N + 1
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


def measured(checkpoint: Path, like: Path, output: Path, **changed: Any) -> Json:
    """One eval of a checkpoint, from a shell, configured as the training's but for `changed`."""
    job = records.read_json(like / f"step_{LAST}" / "decode_eval_config.json")
    block = {name: value for name, value in job["config"].items() if value is not None}
    config = output / "decode_eval.yaml"
    output.mkdir()
    records.write_json(config, {**block, **changed, "output_dir": str(output / "run")})
    done = subprocess.run(
        [
            *(sys.executable, "-m", "utils.decode_eval", "run", config),
            *("--checkpoint", checkpoint, "--step", str(LAST)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = history.read(output / "run")
    return row


# The layers whose inputs the example's head sees, which are the default of both engines.
FED = [2, 15, 27]


def copied(trained: Path, folder: Path, **changed: Any) -> Path:
    """The trained head with another config.json."""
    head = trained / f"step_{LAST}" / "model" / "consolidated"
    folder.mkdir()
    (folder / weights.FILE).hardlink_to(head / weights.FILE)
    records.write_json(
        folder / weights.CONFIG, {**records.read_json(head / weights.CONFIG), **changed}
    )
    return folder


def assert_the_same_length(row: Json, trained: Path) -> None:
    """Of the same weights on the same prompts, within the interval of the training's eval."""
    reference = history.measured(history.read(trained))[-1]
    assert [one["prompts_sha256"] for one in row["sets"]] == [
        one["prompts_sha256"] for one in reference["sets"]
    ]
    assert row["snapshot"]["sha256"] == reference["snapshot"]["sha256"]
    assert reference["lower"] <= row["acceptance_length"] <= reference["upper"]


def test_sglang_measures_the_same_length(sglang: Embedded, trained: Path, tmp_path: Path) -> None:
    outputs = {eagle3.LAYER_IDS: [layer - 1 for layer in FED]}
    row = measured(
        copied(trained, tmp_path / "head", eagle_config=outputs),
        trained,
        tmp_path / "sglang",
        engine="sglang",
        engine_python=str(sglang.python),
        engine_args=sglang_server.ON_A_CPU,
        engine_env=sglang_server.environment(sglang),
    )
    assert (row["engine"]["name"], row["engine"]["method"]) == ("sglang", "eagle3")
    assert_the_same_length(row, trained)


def test_shards_in_the_speculators_format_are_the_same_head(trained: Path, tmp_path: Path) -> None:
    head = copied(trained, tmp_path / "head")
    config = records.read_json(head / weights.CONFIG)
    verifier = {"name_or_path": config["_name_or_path"], "architectures": ["LlamaForCausalLM"]}
    said = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": config["draft_vocab_size"],
        "norm_before_residual": False,
        eagle3.LAYER_IDS: FED,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": N}],
            "verifier": verifier,
        },
        "transformer_layer_config": config,
    }
    records.write_json(head / weights.CONFIG, said)
    names = sorted(weights.read(head).tensors)
    files.split(head, names[::2], names[1::2])
    assert_the_same_length(measured(head, trained, tmp_path / "eval"), trained)


def test_the_target_as_its_own_draft_is_always_accepted(
    engine: Embedded, trained: Path, tmp_path: Path
) -> None:
    """Numbers of tokens that whole steps make, so that no step is cut off at the end."""
    limit = 1 + 8 * (N + 1)
    row = measured(engine.model_path, trained, tmp_path / "self", max_new_tokens=limit)
    assert row["engine"]["method"] == "draft_model"
    assert row["acceptance_length"] == N + 1
