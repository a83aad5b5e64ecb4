"""Looks, what each may err, and what they decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from utils import records
from utils.golden import early, registry
from utils.golden.registry import Golden
from utils.verdicts import Outcome

TOLERANCES = records.read_yaml(registry.FOLDER / registry.TOLERANCES, "tolerances")
N = 80
ROWS = tuple((20 + 7 * i % 13, 20) for i in range(N))  # unlike prompts, in file order


def golden(imported: bool = False) -> Golden:
    """Of 80 prompts; an imported one has no rows."""
    accepted, steps = (sum(column) for column in zip(*ROWS, strict=True))
    al = 1 + accepted / steps
    key = {"num_speculative_tokens": 3, "prompts": N, "thinking": "on"}
    if imported:
        return Golden("f.yaml", key, "p", True, "s", al, ())
    return Golden("f.yaml", key, "p", False, "s", al, (al,), float(steps), (ROWS,))


def sent(change: int = 0) -> list[tuple[int, int]]:
    """Rows in the order of sending; change: of accepted tokens of each, in turn more or less."""
    rows = [ROWS[place] for place in early.order(N, TOLERANCES)]
    return [(a + change + (-1) ** i, s) for i, (a, s) in enumerate(rows)]


def decided(rows: list[tuple[int, int]], one: Golden, concurrency: int = 1) -> tuple[int, str]:
    """After how many prompts, and what."""
    path = early.path(rows, early.looks(N, concurrency, TOLERANCES), one, TOLERANCES)
    last = path[-1]
    assert all(look.outcome is None for look in path[:-1])
    return last.prompts, last.as_json()["outcome"]


def test_the_order_is_fixed_and_no_one_elses_choice() -> None:
    order = early.order(N, TOLERANCES)
    assert order[:8] == [72, 30, 71, 39, 49, 29, 38, 56]
    assert sorted(order) == list(range(N))
    seed = {**TOLERANCES["early"], "seed": {"value": 2, "reason": "x"}}
    assert early.order(N, {**TOLERANCES, "early": seed}) != order


def test_rows_go_back_into_file_order() -> None:
    rows = [ROWS[place] for place in early.order(N, TOLERANCES)]
    assert early.in_file_order(rows, TOLERANCES) == ROWS


@pytest.mark.parametrize(
    ("prompts", "concurrency", "expected"),
    [
        (80, 1, [8, 12, 16, 20, 24, 32, 44, 60, 80]),
        (80, 8, [8, 16, 24, 32, 44, 60, 80]),
        (80, 32, [32, 80]),  # 20 more after 60 would be too small a batch
        (80, 64, [80]),
        (32, 4, [8, 13, 18, 24, 32]),
        (10, 1, [8, 10]),
        (4, 1, [4]),
    ],
)
def test_no_batch_is_smaller_than_the_concurrency(
    prompts: int, concurrency: int, expected: list[int]
) -> None:
    assert early.looks(prompts, concurrency, TOLERANCES) == expected


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_looks_spend_one_error_rate(power: float) -> None:
    spending = {**TOLERANCES["early"], "spending_power": {"value": power, "reason": "x"}}
    tolerances = {**TOLERANCES, "early": spending}
    for concurrency in (1, 8, 32, 64):
        ends = early.looks(N, concurrency, tolerances)
        rates = [early.error_rate(end, ends, tolerances) for end in ends]
        assert sum(rates) == pytest.approx(0.01)
        assert min(rates) > 0


def test_an_honest_run_stops_soon_and_a_bad_one_too() -> None:
    assert decided(sent(), golden()) == (8, "pass")
    assert decided(sent(-10), golden()) == (8, "fail")
    assert decided(sent(10), golden()) == (8, "fail")


def test_doubt_goes_on() -> None:
    assert decided(sent(-2), golden()) == (12, "pass")  # about -4 %
    wild = [(a - 4 + 9 * (-1) ** i, s) for i, (a, s) in enumerate(sent())]
    assert decided(wild, golden()) == (60, "fail")


def test_unpaired_most_must_be_sent_before_a_pass() -> None:
    prompts, outcome = decided(sent(), golden(imported=True))
    assert (prompts > 40, outcome) == (True, "pass")


def test_unpaired_a_wreck_is_seen_soon() -> None:
    rows = [(a // 4, s) for a, s in sent()]
    prompts, outcome = decided(rows, golden(imported=True))
    assert (prompts <= 12, outcome) == (True, "fail")


def test_missing_prompts_count_less_and_less() -> None:
    """With all of them sent nothing is left but the spread between runs."""
    rows, one = sent(), golden(imported=True)
    errors = []
    for prompts in (20, 40, 60, 80):
        shift = early.shift_of(rows[:prompts], N, one, TOLERANCES)
        assert shift
        errors.append(shift.standard_error)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == pytest.approx(0.015 * 2**0.5, rel=1e-2)


def test_what_has_no_spread_decides_nothing() -> None:
    small = golden(imported=True)
    small = replace(small, key={**small.key, "prompts": 40})
    look = early.look(sent()[:8], [8, 40], small, TOLERANCES)
    assert (look.outcome, look.shift) == (None, None)
    assert str(look) == "after 8 prompts: too little to compare"
    assert look.as_json()["log_ratio"] is None


def test_every_look_uses_its_own_error_rate() -> None:
    ends = early.looks(N, 1, TOLERANCES)
    look = early.look(sent()[:12], ends, golden(), TOLERANCES)
    assert look.error_rate == pytest.approx(0.01 * (12 - 8) / 80)
    assert look.outcome is Outcome.PASS
    assert "99.9% interval" in str(look)  # of a pass: one end of it may be wrong
