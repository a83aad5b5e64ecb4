"""benchmarks/tasks: what lm-eval is given."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

TASKS = Path(__file__).parents[2] / "benchmarks" / "tasks"


def test_arithmetic_is_right_and_shots_are_not_questions() -> None:
    rows = {
        name: [json.loads(line) for line in (TASKS / name).read_text().splitlines()]
        for name in ("arithmetic.jsonl", "arithmetic_shots.jsonl")
    }
    for row in [row for group in rows.values() for row in group]:
        left, right = row["question"].split(" + ")
        assert int(left) + int(right) == int(row["answer"])
    questions = [row["question"] for row in rows["arithmetic.jsonl"]]
    assert len(set(questions)) == len(questions) == 48
    assert not set(questions) & {row["question"] for row in rows["arithmetic_shots.jsonl"]}


@pytest.mark.parametrize("question", ["Why?", "How many?", "Which one?"])
def test_gpqa_choices_depend_on_the_question_alone(question: str) -> None:
    spec = importlib.util.spec_from_file_location("gpqa", TASKS / "gpqa.py")
    assert spec
    assert spec.loader
    gpqa = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpqa)
    row = {
        "Question": question,
        "Correct Answer": " right ",
        **{f"Incorrect Answer {i}": f"wrong {i}" for i in (1, 2, 3)},
    }
    made = gpqa.row_with_choices(row)
    assert made == gpqa.row_with_choices(dict(row))
    lines = dict(line.split(" ", 1) for line in made["choices"].splitlines())
    assert lines[made["answer"]] == "right"
    assert sorted(lines) == ["(A)", "(B)", "(C)", "(D)"]
