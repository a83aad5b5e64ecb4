from __future__ import annotations

from typing import Any

import pytest

from utils.ci import expressions, workflow
from utils.ci.expressions import Scope, condition, evaluate, fill
from utils.errors import UsageError

CONTEXTS = {
    "inputs": {"text": "a'b", "empty": "", "yes": True, "no": False, "seven": 7},
    "needs": {"plan": {"outputs": {"batch-1": '[{"cell": "x"}]', "none": "[]"}}},
    "github": {"run_attempt": "2"},
}


def scope(failed: bool = False, cancelled: bool = False, ran: bool = True) -> Scope:
    return Scope(CONTEXTS, failed, cancelled, ran)


VALUES = [
    ("inputs.text", "a'b"),
    ("inputs.text == 'a''b'", True),
    ("inputs.text != 'x' && inputs.yes", True),
    ("inputs.empty || github.run_attempt", "2"),
    ("inputs.yes && 'one' || 'other'", "one"),
    ("inputs.no && 'one' || 'other'", "other"),
    ("!inputs.no", True),
    ("!(inputs.yes && inputs.no)", True),
    ("!inputs.no == inputs.yes", True),
    ("inputs.no || inputs.yes && inputs.text", "a'b"),
    ("inputs.no && inputs.text || inputs.seven", 7),
    ("needs.plan.outputs.batch-1 != '[]'", True),
    ("fromJSON(needs.plan.outputs.batch-1)", [{"cell": "x"}]),
    ("inputs.seven == 7", True),
    ("true", True),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values(text: str, value: Any) -> None:
    assert evaluate(text, scope()) == value


REFUSED = [
    ("inputs.txet", "nothing is called 'inputs.txet' here"),
    ("secrets.X", "nothing is called 'secrets.X' here"),
    ("github.token", "nothing is called 'github.token' here"),
    ("hashFiles('x')", "unknown function hashFiles"),
    ("inputs.text == inputs.yes", "compares"),
    ("inputs.text inputs.yes", "can't be read"),
    ("inputs.text ==", "can't be read"),
    ("inputs.yes == inputs.no == inputs.yes", "can't be read"),
    ("(inputs.text", "can't be read"),
    ("inputs.yes || inputs.txet", "nothing is called 'inputs.txet' here"),
    ("inputs.*", "can't read '.*'"),
    ("fromJSON(inputs.empty)", "is no JSON"),
    ("always(1)", "unknown function always"),
    ("", "can't be read"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_is_unknown_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        evaluate(text, scope())
    assert said in str(refused.value)


CONDITIONS = [
    ("inputs.yes", {}, True),
    ("inputs.yes", {"failed": True}, False),
    ("inputs.yes", {"ran": False}, False),
    ("inputs.yes", {"cancelled": True}, False),
    ("always()", {"failed": True, "cancelled": True}, True),
    ("${{ !cancelled() }}", {"failed": True}, True),
    ("!cancelled()", {"cancelled": True}, False),
    ("!failure() && !cancelled() && inputs.yes", {"ran": False}, True),
    ("!failure() && !cancelled() && inputs.yes", {"failed": True}, False),
    ("failure()", {"failed": True}, True),
    ("always() && inputs.no", {}, False),
]


@pytest.mark.parametrize(("text", "state", "holds"), CONDITIONS)
def test_conditions(text: str, state: dict[str, bool], holds: bool) -> None:
    assert condition(text, scope(**state)) is holds


def test_holes_are_filled_and_a_lone_one_keeps_its_type() -> None:
    given = {"a": "${{ inputs.yes }}", "b": "x-${{ inputs.yes }}", "c": ["${{ inputs.seven }}"]}
    assert fill(given, scope()) == {"a": True, "b": "x-true", "c": [7]}
    with pytest.raises(UsageError, match="is no text"):
        fill("x ${{ needs.plan }}", scope())


INPUTS = {
    "name": {"type": "string", "required": True},
    "kind": {"type": "choice", "options": ["a", "b"], "default": "a"},
    "flag": {"type": "boolean"},
    "count": {"type": "number", "default": 3},
}
RESOLVED = [
    ({"name": "x"}, {"name": "x", "kind": "a", "flag": False, "count": 3}),
    (
        {"name": "", "kind": "b", "flag": "true", "count": "4"},
        {"name": "", "kind": "b", "flag": True, "count": 4},
    ),
]


@pytest.mark.parametrize(("given", "found"), RESOLVED)
def test_inputs(given: dict[str, Any], found: dict[str, Any]) -> None:
    assert workflow.resolve(workflow.Workflow("w", INPUTS, {}, {}), given) == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs the input name"),
        ({"name": "x", "nmae": "y"}, "did you mean name"),
        ({"name": "x", "kind": "c"}, "want one of a, b"),
        ({"name": "x", "flag": "yes"}, "want true or false"),
        ({"name": "x", "count": "four"}, "want a number"),
        ({"name": True}, "want a text"),
    ],
)
def test_inputs_that_github_would_refuse(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        workflow.resolve(workflow.Workflow("w", INPUTS, {}, {}), given)


def test_jobs_come_after_those_they_need() -> None:
    jobs: Any = {"c": {"needs": ["b"]}, "b": {"needs": "a"}, "d": {}, "a": {}}
    assert workflow.ordered(jobs) == ["d", "a", "b", "c"]
    assert workflow.ancestors(jobs, "c") == {"a", "b"}
    with pytest.raises(UsageError, match="isn't there"):
        workflow.ancestors({"a": {"needs": "z"}}, "a")


def test_status_functions_are_all_known() -> None:
    assert set(scope().status) == set(expressions.STATUS_FUNCTIONS)
