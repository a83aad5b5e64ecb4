from __future__ import annotations

import itertools

import pytest

from utils.verdicts import Outcome, Verdict, exit_status


def verdict(outcome: Outcome, **values: object) -> Verdict:
    return Verdict(outcome, "gsm8k conc=1", "exact_match", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "outcomes", [c for n in range(4) for c in itertools.product(Outcome, repeat=n)]
)
def test_only_pass_passes_and_a_failure_wins(outcomes: tuple[Outcome, ...]) -> None:
    status = exit_status([verdict(outcome) for outcome in outcomes])
    if Outcome.FAIL in outcomes:
        assert status == 1
    elif outcomes and all(outcome is Outcome.PASS for outcome in outcomes):
        assert status == 0
    else:
        assert status == 3


def test_line_says_measured_limits_source_and_why() -> None:
    line = verdict(
        Outcome.FAIL, measured=0.9, lower=0.91, source="thresholds.yaml", reason="low", detail="why"
    ).line()
    assert line == (
        "FAIL         gsm8k conc=1: exact_match 0.9000 want >= 0.91 (thresholds.yaml) — low: why"
    )


def test_line_without_a_value() -> None:
    line = verdict(Outcome.NOT_MEASURED, reason="missing").line()
    assert line == "NOT_MEASURED gsm8k conc=1: exact_match no value — missing"


@pytest.mark.parametrize(
    ("lower", "upper", "text"),
    [(None, None, ""), (1.0, None, ">= 1"), (None, 2.0, "<= 2"), (1.0, 2.5, "1..2.5")],
)
def test_limits(lower: float | None, upper: float | None, text: str) -> None:
    assert verdict(Outcome.PASS, lower=lower, upper=upper).limits() == text


def test_as_json_holds_plain_values() -> None:
    row = verdict(Outcome.PASS, evidence=("a.json",)).as_json()
    assert row["outcome"] == "pass"
    assert row["evidence"] == ["a.json"]
