from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utils import records
from utils.errors import HarnessError, NotMeasured, UsageError

SCHEMAS = sorted(path.stem for path in records.SCHEMAS.glob("*.json"))


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "-1e999", "{", "[1,]", '{"a": NaN}'])
def test_parse_json_refuses_what_is_not_a_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        records.parse_json(text)


@pytest.mark.parametrize("text", ["1", " 1", "1\n", "\r\n\t 1 \n"])
def test_parse_json_allows_white_space(text: str) -> None:
    assert records.parse_json(text) == 1


@pytest.mark.parametrize("text", ["", " ", "1 2", "1,", "1\x0b", "\ufeff1", "{} {}", "[1]]"])
def test_parse_json_wants_one_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        records.parse_json(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_parse_json_keeps_numbers(value: float) -> None:
    assert records.parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "empty"), (b" \n", "empty"), (b"\xff{}", "can't be read"), (b"{", "not valid JSON")],
)
def test_read_json_says_why(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(NotMeasured, match=why):
        records.read_json(path)


def test_read_json_of_a_missing_file_or_a_deep_one(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match="can't be read"):
        records.read_json(tmp_path / "none.json")
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 200_000)
    with pytest.raises(NotMeasured, match="not valid JSON"):
        records.read_json(deep)


def test_any_text_can_be_written(tmp_path: Path) -> None:
    records.write_text(tmp_path / "x.md", "a\ud800é")
    assert (tmp_path / "x.md").read_text(encoding="utf-8") == "a\\ud800é"


def test_write_json_is_whole_sorted_and_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    records.write_json(path, {"b": 1, "a": [2.5]})
    assert path.read_text() == '{\n  "a": [\n    2.5\n  ],\n  "b": 1\n}\n'
    assert stat.S_IMODE(path.stat().st_mode) & 0o400
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_write_json_refuses_numbers_that_are_not_finite(tmp_path: Path, value: float) -> None:
    with pytest.raises(HarnessError):
        records.write_json(tmp_path / "a.json", {"a": value})
    assert list(tmp_path.iterdir()) == []


def test_write_json_refuses_what_breaks_the_schema(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="would break schema serving"):
        records.write_json(tmp_path / "a.json", {"task": "serving"}, "serving")
    assert list(tmp_path.iterdir()) == []


def test_read_json_refuses_what_breaks_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"task": "serving"}')
    assert records.read_json(tmp_path / "a.json") == {"task": "serving"}
    with pytest.raises(NotMeasured, match=r"a\.json: .* \(schema serving\)") as caught:
        records.read_json(tmp_path / "a.json", "serving")
    assert caught.value.reason == "wrong_shape"


def test_yaml_with_a_key_that_is_a_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("? [1, 2]\n: 3\n")
    with pytest.raises(UsageError, match="unhashable key"):
        records.parse_yaml(tmp_path / "t.yaml")


def test_yaml_modes_stay_words_and_keys_unique(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    row = "    min_score: 0.5\n    source: x\n"
    limits = "".join(
        f"  {name}: {{value: 0.1, reason: x}}\n"
        for name in ("unusable_answers", "extraction_gap", "failed_requests", "input_length")
    )
    task = "tasks:\n  on:\n    metric: a,b\n    samples: 1\n    models: {}\n"
    head = f"schema: thresholds/1\nlimits:\n{limits}{task}"
    path.write_text(head)
    assert list(records.read_yaml(path, "thresholds")["tasks"]) == ["on"]
    path.write_text(head + "    samples: 2\n")
    with pytest.raises(UsageError, match="'samples' is given twice"):
        records.read_yaml(path, "thresholds")
    path.write_text(head + row)
    with pytest.raises(UsageError, match="schema thresholds"):
        records.read_yaml(path, "thresholds")


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "1.0e+999"])
def test_yaml_holds_finite_numbers_only(tmp_path: Path, value: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"schema: thresholds/1\nlimits: {value}\n")
    with pytest.raises(UsageError, match="isn't finite"):
        records.read_yaml(path, "thresholds")


@given(st.floats(min_value=0, max_value=4e9))
def test_times_survive_the_round_trip(moment: float) -> None:
    assert records.parse_time(records.format_time(moment)) == pytest.approx(moment, abs=1e-6)


@pytest.mark.parametrize("text", ["yesterday", "2026-12-01T10:00:00"])
def test_a_time_needs_a_zone(text: str) -> None:
    with pytest.raises(NotMeasured):
        records.parse_time(text)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_valid(name: str) -> None:
    import jsonschema

    schema = records.read_json(records.SCHEMAS / f"{name}.json")
    jsonschema.Draft202012Validator.check_schema(schema)
