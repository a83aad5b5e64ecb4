from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from utils.errors import NotMeasured
from utils.evals import answers

THOUGHT = "<think>5?</think>42"


def check(
    folder: Path,
    texts: Sequence[Any],
    found: Sequence[str] | None = None,
    documents: int = 10,
    tail: str = "",
) -> str:
    """The reason for which a log of these answers is refused; empty when it isn't."""
    taken = ["42"] * len(texts) if found is None else found
    rows = [
        {"doc_id": i, "resps": [[text]], "filtered_resps": [one], "filter": name}
        for name in ("strict", "flexible")
        for i, (text, one) in enumerate(zip(texts, taken, strict=True))
    ]
    log = folder / "samples.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    try:
        answers.check(str(log), "samples.jsonl", documents, 0.1)
    except NotMeasured as error:
        return error.reason
    return ""


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["42"] * 10, ""),
        (["42"] * 9 + [""], ""),
        (["42"] * 8 + ["", " \n"], "empty_answers"),
        (["42"] * 8 + [None, None], "empty_answers"),
        ([THOUGHT] * 10, ""),
        ([THOUGHT] * 8 + ["<think>5?</think>", "<think></think> "], "empty_answers"),
        (["<think>42"] + ["42"] * 9, ""),
        (["<think>42"] * 2 + ["42"] * 8, "truncated_answers"),
        (["[THINK]42"] * 2 + ["42"] * 8, "truncated_answers"),
        # opened by the template, in the prompt
        (["5?</think>42"] * 9 + ["let me see 42"], ""),
        (["5?</think>42"] * 8 + ["let me see 42"] * 2, "truncated_answers"),
        # opened by the model, which need not think every time
        ([THOUGHT] * 5 + ["42"] * 5, ""),
        ([THOUGHT] * 5 + ["5?</think>42"] + ["42"] * 4, "truncated_answers"),
        (["42"] * 9, "partial"),
        (["42"] * 11, "partial"),
    ],
)
def test_shares(tmp_path: Path, texts: list[Any], reason: str) -> None:
    assert check(tmp_path, texts) == reason


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (["42"] * 10, ""),
        (["42"] * 9 + ["5"], ""),
        (["42"] * 8 + ["5"] * 2, "reasoning_extracted"),
        # made by a filter, not taken from the text
        (["forty-two"] * 10, ""),
        (["42"] * 9 + ["[invalid]"], ""),
        (["42"] * 8 + ["[invalid]"] * 2, "no_answer_found"),
    ],
)
def test_what_the_filters_took(tmp_path: Path, found: list[str], reason: str) -> None:
    assert check(tmp_path, [THOUGHT] * 10, found) == reason


def test_one_filter_that_finds_an_answer_is_enough(tmp_path: Path) -> None:
    tail = "".join(
        json.dumps({"doc_id": i, "resps": [["42"]], "filtered_resps": ["42"]}) + "\n"
        for i in range(10)
    )
    assert check(tmp_path, ["42"] * 10, ["[invalid]"] * 10, tail=tail) == ""


@pytest.mark.parametrize(
    "tail",
    [
        "{",
        "[]\n",
        '{"doc_id": 1}\n',
        '{"doc_id": 1, "resps": []}\n',
        '{"doc_id": 1, "resps": [["a"]]}\n',
        '{"doc_id": 1, "resps": [["a"]], "filtered_resps": []}\n',
        "NaN\n",
    ],
)
def test_a_broken_log(tmp_path: Path, tail: str) -> None:
    assert check(tmp_path, ["42"] * 10, tail=tail) == "unreadable"


def test_a_log_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured) as caught:
        answers.check(str(tmp_path / "none"), "none", 10, 0.1)
    assert caught.value.reason == "unreadable"


def test_the_share_is_said_with_its_limit(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    row = {"doc_id": 0, "resps": [[""]], "filtered_resps": ["[invalid]"]}
    log.write_text(json.dumps(row) + "\n")
    with pytest.raises(NotMeasured, match=r"1 of 1 answers are empty: .*100%, at most 10% may be"):
        answers.check(str(log), "s.jsonl", 1, 0.1)
