"""The referee's verdict; that it decodes right is shown in torch_cases.py and tests/engine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tests import al_records
from utils.decode_eval import judge
from utils.errors import NotMeasured, UsageError
from utils.evals.prompt_files import PromptFile
from utils.records import Json


def spoken(*accepted: list[int], same: bool | None = True) -> list[Json]:
    return [
        {"id": f"p{i}", "accepted": counts, "tokens": [1], "same": same}
        for i, counts in enumerate(accepted)
    ]


def test_figures_are_pooled_over_steps_and_clustered_by_prompt() -> None:
    found = judge._figures(spoken([3, 0], [1, 2, 0, 0]), 3)
    assert found["acceptance_length"] == 2.0
    assert found["per_position"] == [3 / 6, 2 / 6, 1 / 6]
    assert found["lower"] < 2.0 < found["upper"]


@pytest.mark.parametrize(
    ("same", "interval", "status"),
    [
        (True, None, 0),
        (None, None, 0),
        (False, None, 1),
        (True, (1.9, 2.1), 0),
        (True, (1.5, 1.9), 1),
        (True, (2.1, 2.5), 1),
        (True, (None, None), 1),
    ],
)
def test_verdict(same: bool | None, interval: Any, status: int) -> None:
    rows = spoken([3, 0], [1, 2, 0, 0], same=same)
    record = {"rows": rows, **judge._figures(rows, 3)}
    engine = None
    if interval:
        estimate = dict(zip(("lower", "upper"), interval, strict=True))
        engine = {"acceptance_length": 2.0, "estimate": estimate}
    assert judge._verdict(record, engine) == status


def asked(path: Path, **changes: Any) -> argparse.Namespace:
    right = {"n": 2, "max_new_tokens": 4096, "temperature": 1.0, "against": path}
    return argparse.Namespace(**{**right, **changes})


@pytest.mark.parametrize(
    ("changes", "sha256", "limit"),
    [
        ({"n": 3}, al_records.SHA, 4),
        ({"max_new_tokens": 64}, al_records.SHA, 4),
        ({"temperature": 0.0}, al_records.SHA, 4),
        ({}, "cd" * 32, 4),
        ({}, al_records.SHA, 3),
    ],
)
def test_a_record_of_something_else_is_no_measure(
    tmp_path: Path, changes: Json, sha256: str, limit: int
) -> None:
    path = tmp_path / "al_default.json"
    path.write_text(json.dumps(al_records.version_2()))
    frozen = PromptFile("d", None, True, al_records.SHA, ())
    assert judge._engine_record(asked(path), frozen, 4)["acceptance_length"] > 1
    other = PromptFile("d", None, True, sha256, ())
    with pytest.raises(UsageError, match="the referee's"):
        judge._engine_record(asked(path, **changes), other, limit)


def test_a_record_that_was_edited_is_no_measure(tmp_path: Path) -> None:
    path = tmp_path / "al_default.json"
    record = al_records.version_2()
    path.write_text(json.dumps({**record, "acceptance_length": 2.5}))
    frozen = PromptFile("d", None, True, al_records.SHA, ())
    with pytest.raises(NotMeasured, match="observations come to"):
        judge._engine_record(asked(path), frozen, 4)
