"""Prompt sets: every kind of file gives the same prompts by one rule, and they stay as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from utils.decode_eval import prompts, resolve_decode_eval_config
from utils.decode_eval.config import DecodeEvalConfig, PromptSource
from utils.errors import UsageError

ROWS = [
    {
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": f"Question {i}?"},
            {"role": "assistant", "content": "Answer."},
        ],
        "text": f"Question {i}?",
        "ids": [i, i + 1],
    }
    for i in range(20)
]


def config(folder: Path, data: Path, **fields: Any) -> DecodeEvalConfig:
    block = {
        "every_steps": 1,
        "cuda_visible_devices": "cpu",
        "target_model": "t",
        "output_dir": str(folder / "out"),
        "num_speculative_tokens": 1,
        "input_data": str(data),
        "num_prompts": 5,
        **fields,
    }
    found = resolve_decode_eval_config(block, environ={})
    assert found
    return found


def source(folder: Path, data: Path, **fields: Any) -> PromptSource:
    return config(folder, data, **fields).sources[0]


def write(kind: str, folder: Path) -> Path:
    path = folder / f"data.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == "json":
        path.write_text(json.dumps(ROWS))
    elif kind == "splits.json":
        path.write_text(json.dumps({"train": ROWS, "test": ROWS[:2]}))
    elif kind == "parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif kind == "folder":
        path.mkdir()
        write("parquet", path)
    else:
        import datasets

        dataset = datasets.Dataset.from_list(ROWS)
        if kind == "saved_splits":
            datasets.DatasetDict({"train": dataset}).save_to_disk(path)
        else:
            dataset.save_to_disk(path)
    return path


# By sha256("42:i").
FIRST = (1, 13, 11, 0, 6)
KINDS = ["jsonl", "json", "splits.json", "parquet", "folder", "saved", "saved_splits"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_the_same_prompts(kind: str, tmp_path: Path) -> None:
    drawn = prompts.draw(source(tmp_path, write(kind, tmp_path)), 42)
    first = {
        "id": f"default/{FIRST[0]}",
        "messages": ROWS[FIRST[0]]["messages"][:2],  # type: ignore[index]
    }
    assert [row["id"] for row in drawn] == [f"default/{i}" for i in FIRST]
    assert drawn[0] == first


def test_seed_and_slice_decide_for_every_kind(tmp_path: Path) -> None:
    data = write("jsonl", tmp_path)
    seven = prompts.draw(source(tmp_path, data), 7)
    assert [row["id"] for row in seven] != [f"default/{i}" for i in FIRST]
    last = prompts.draw(source(tmp_path, data, split="train[75%:]"), 42)
    texts = {row["messages"][1]["content"] for row in last}
    assert texts == {f"Question {i}?" for i in range(15, 20)}
    with pytest.raises(UsageError, match="has 3 different usable prompts in 3 rows"):
        prompts.draw(source(tmp_path, data, split="train[-3:]"), 42)


SHAREGPT = [
    {"from": "human", "value": "Hello?"},
    {"from": "gpt", "value": "Hi."},
    {"from": "human", "value": "And now?"},
    {"from": "gpt", "value": "Nothing."},
]
CELLS: list[tuple[dict[str, Any], Any, Any]] = [
    (
        {},
        {"conversations": SHAREGPT},
        [("user", "Hello?"), ("assistant", "Hi."), ("user", "And now?")],
    ),
    ({"prompt_column": "q"}, {"q": "Why?"}, [("user", "Why?")]),
    ({"prompt_column": "q"}, {"q": ["First", "then"]}, [("user", "First")]),
    (
        {"prompt_column": "q", "endpoint": "completions"},
        {"q": "def f("},
        [("user", "def f(")],
    ),
    (
        {"token_ids_column": "ids", "endpoint": "completions"},
        {"ids": [5, 6]},
        [("user", [5, 6])],
    ),
]
UNUSABLE: list[tuple[dict[str, Any], Any]] = [
    ({}, {"messages": []}),
    ({}, {"messages": [{"role": "assistant", "content": "x"}]}),
    ({}, {"messages": [{"role": "system", "content": "x"}]}),
    ({}, {"messages": [{"role": "user", "content": ""}]}),
    ({}, {"messages": "text"}),
    ({"prompt_column": "q"}, {"q": " "}),
    ({"token_ids_column": "ids", "endpoint": "completions"}, {"ids": ["a"]}),
    ({"token_ids_column": "ids", "endpoint": "completions"}, {"ids": [-1]}),
]


@pytest.mark.parametrize(("fields", "row", "want"), CELLS)
def test_a_row_becomes_messages(
    fields: dict[str, Any], row: Any, want: Any, tmp_path: Path
) -> None:
    data = tmp_path / "one.jsonl"
    data.write_text(json.dumps(row) + "\n")
    (drawn,) = prompts.draw(source(tmp_path, data, num_prompts=1, **fields), 42)
    assert [(m["role"], m["content"]) for m in drawn["messages"]] == want


@pytest.mark.parametrize(("fields", "row"), UNUSABLE)
def test_a_row_that_says_nothing_is_left_out(
    fields: dict[str, Any], row: Any, tmp_path: Path
) -> None:
    data = tmp_path / "one.jsonl"
    data.write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match="0 different usable prompts"):
        prompts.draw(source(tmp_path, data, num_prompts=1, **fields), 42)


def test_a_prompt_is_drawn_once(tmp_path: Path) -> None:
    data = tmp_path / "twice.jsonl"
    data.write_text((json.dumps(ROWS[0]) + "\n") * 9)
    with pytest.raises(UsageError, match="1 different"):
        prompts.draw(source(tmp_path, data, num_prompts=2), 42)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"messages_column": "chat"},
            "no column chat or conversations; it has ids, messages, text",
        ),
        ({"prompt_column": "prompt"}, "no column prompt; it has"),
        ({"input_data": "held-out.jsonl"}, "there is no file held-out.jsonl"),
    ],
)
def test_wrong_source(fields: dict[str, Any], text: str, tmp_path: Path) -> None:
    data = write("jsonl", tmp_path)
    with pytest.raises(UsageError, match=text):
        prompts.draw(source(tmp_path, data, **fields), 42)


def test_frozen_once_and_the_same_ever_after(tmp_path: Path) -> None:
    data = write("jsonl", tmp_path)
    both = [{"name": "chat"}, {"name": "raw", "prompt_column": "text", "num_prompts": 2}]
    first = prompts.freeze(config(tmp_path, data, prompt_sets=both))
    assert {name: len(one.prompts) for name, one in first.items()} == {"chat": 5, "raw": 2}
    assert all(one.proxy for one in first.values())  # no golden is for these
    data.unlink()  # the run no longer needs it
    again = prompts.freeze(config(tmp_path, data, prompt_sets=both))
    assert again == first
    with pytest.raises(UsageError, match="was frozen from other settings"):
        prompts.freeze(config(tmp_path, data, prompt_sets=both, shuffle_seed=1))
    path = prompts.path_of(config(tmp_path, data), "chat")
    path.write_text(path.read_text() + "\n")
    with pytest.raises(UsageError, match="is not the file that"):
        prompts.read(path)


def test_a_data_set_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched in a test: the library's own call is what counts."""
    import datasets

    asked: list[tuple[Any, ...]] = []

    def load(name: str, config: str | None, split: str) -> Any:
        asked.append((name, config, split))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load)
    fields = {"input_data": "org/name", "dataset_name": "en", "split": "test[:50%]"}
    drawn = prompts.draw(source(tmp_path, tmp_path, **fields), 42)
    assert asked == [("org/name", "en", "test")]
    assert all(int(row["id"].partition("/")[2]) < 10 for row in drawn)
