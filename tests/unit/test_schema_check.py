"""The fast check says yes to what is in order, and never where jsonschema says no."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests import al_records
from utils import record_kinds, records, schema_check

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "result_dirs"
VALUES = (None, True, False, 0, 1, -1, 2.0, 0.5, 1e9, "", "on", "x", [], [1], [1, 1], {}, {"x": 1})


def examples() -> Iterator[tuple[str, Any]]:
    """Sound files, by kind."""
    for path in (
        *CASES.glob("pass/*/*.json"),
        *ROOT.glob("benchmarks/*.yaml"),
        *ROOT.glob("benchmarks/*/*.yaml"),
    ):
        try:
            kind = record_kinds.check(path)
        except records.NotMeasured:
            continue
        yield kind, records.read_json(path) if path.suffix == ".json" else records.parse_yaml(path)
    yield "al_record_v2", al_records.version_2()


def one_of_each() -> dict[str, Any]:
    """The largest sound example of every kind, cut down to what can be mutated in a moment."""
    found: dict[str, Any] = {}
    for kind, data in examples():
        if kind not in found or len(json.dumps(data)) > len(json.dumps(found[kind])):
            found[kind] = data
    for record in (found["al_record_v2"],):
        record["raw"] = {**record["raw"], "requests": record["raw"]["requests"][:1]}
    found["golden"]["entries"] = found["golden"]["entries"][:1]
    return found


EXAMPLES = one_of_each()


def mutants(data: Any) -> Iterator[Any]:
    """Every value replaced by others, every key left out, a key added to every object."""
    for path in list(paths(data)):
        for value in VALUES:
            yield changed(data, path, value)
        if path and isinstance(path[-1], str):
            yield changed(data, path, ...)
    for path in list(paths(data)):
        if isinstance(at(data, path), dict):
            yield changed(data, (*path, "unknown"), 1)


def paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data[:2])
        if isinstance(data, list)
        else ()
    )
    for name, value in items:
        yield from paths(value, (*path, name))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        data = data[name]
    return data


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    result = copy.deepcopy(data)
    parent = at(result, path[:-1])
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return result


def schema(kind: str) -> Any:
    return records.read_json(records.SCHEMAS / f"{kind}.json")


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_agrees_with_jsonschema(kind: str) -> None:
    slow = jsonschema.Draft202012Validator(schema(kind))
    fast = records.fast_check(kind)
    wrong = [
        mutant
        for number, mutant in enumerate(mutants(EXAMPLES[kind]))
        if number % STRIDE.get(kind, 1) == 0 and fast(mutant) and not slow.is_valid(mutant)
    ]
    assert wrong == []


# Large records have thousands of mutants; every few of them is enough.
STRIDE = {"al_record_v2": 7, "models": 3, "golden": 3}
NOT_COMPILED = {"inferencex_agg"}


@pytest.mark.parametrize("kind", sorted(EXAMPLES.keys() - NOT_COMPILED))
def test_is_fast_on_what_is_in_order(kind: str) -> None:
    assert records.fast_check(kind)(EXAMPLES[kind])


@pytest.mark.parametrize(
    ("rule", "yes", "no"),
    [
        ({"type": "integer"}, [1, 2.0, -1], [True, 1.5, "1", None]),
        ({"type": "number"}, [1, 1.5], [False, "1"]),
        ({"type": ["string", "null"]}, ["", None], [1, []]),
        ({"enum": ["on", 1]}, ["on", 1, 1.0], ["off", True]),
        ({"const": True}, [True], [1]),
        ({"const": 0}, [0, 0.0], [False, None]),
        ({"minimum": 0, "maximum": 1}, [0, 1, 0.5, "x"], [-0.1, 1.1]),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 1}, [0.5], [0, 1]),
        ({"minLength": 1}, ["x", 0], [""]),
        ({"pattern": "^a+$"}, ["a", "aa", 1], ["", "b", "ab"]),
        ({"required": ["a"]}, [{"a": 1}, []], [{}]),
        ({"properties": {"a": {"type": "null"}}}, [{}, {"a": None}, {"b": 1}], [{"a": 1}]),
        ({"additionalProperties": False}, [{}], [{"a": 1}]),
        ({"additionalProperties": {"type": "null"}}, [{"a": None}], [{"a": 1}]),
        ({"minProperties": 1}, [{"a": 1}], [{}]),
        ({"propertyNames": {"pattern": "^a"}}, [{"ab": 1}], [{"b": 1}]),
        ({"dependentRequired": {"a": ["b"]}}, [{"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
        ({"items": {"type": "null"}}, [[], [None], "x"], [[1]]),
        ({"prefixItems": [{"type": "null"}], "items": False}, [[], [None]], [[1], [None, None]]),
        ({"minItems": 1, "maxItems": 2}, [[1], [1, 1]], [[], [1, 1, 1]]),
        ({"uniqueItems": True}, [[1, 2]], [[1, 1], [1, 1.0]]),
        ({"anyOf": [{"type": "null"}, {"minimum": 1}]}, [None, 1], [0]),
        ({"oneOf": [{"minimum": 1}, {"maximum": 2}]}, [0, 3], [1, 2]),
        ({"if": {"minimum": 1}, "then": {"maximum": 2}, "else": {"type": "null"}}, [1, 2], [3, 0]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, [None], [1]),
        ({}, [1, None], []),
    ],
)
def test_keywords(rule: Any, yes: list[Any], no: list[Any]) -> None:
    fast = schema_check.compiled(rule)
    slow = jsonschema.Draft202012Validator(rule)
    assert all(fast(value) and slow.is_valid(value) for value in yes)
    assert not any(fast(value) or slow.is_valid(value) for value in no)


def test_a_definition_may_hold_itself() -> None:
    inner = {"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}}
    fast = schema_check.compiled({"$ref": "#/$defs/tree", "$defs": {"tree": inner}})
    assert fast({"a": {"b": {}}})
    assert not fast({"a": {"b": 1}})


@pytest.mark.parametrize("rule", [{"not": {}}, {"items": {"contains": {}}}, {"$ref": "other.json"}])
def test_what_is_not_known_is_not_compiled(rule: Any) -> None:
    with pytest.raises(schema_check.UnknownKeyword):
        schema_check.compiled(rule)
