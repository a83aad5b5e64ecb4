"""±floor, widened by the spread between runs, never beyond the cap."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utils import records
from utils.golden import gate, registry

TOLERANCES = records.read_yaml(registry.FOLDER / registry.TOLERANCES, "tolerances")


def test_floor() -> None:
    found = gate.limits(2.0, (), TOLERANCES)
    assert (found.lower, found.upper) == (1.9, 2.1)
    assert found.rule == "±5% floor"


def test_two_runs_are_too_few_for_a_spread() -> None:
    assert gate.limits(2.0, (1.5, 2.5), TOLERANCES).upper == 2.1


def test_spread_widens() -> None:
    found = gate.limits(2.0, (1.96, 2.0, 2.04), TOLERANCES)
    assert found.upper == pytest.approx(2.0 + 3 * 0.04 * math.sqrt(4 / 3))
    assert found.lower == pytest.approx(2.0 - 3 * 0.04 * math.sqrt(4 / 3))
    assert found.rule == "±3·sd between runs"


def test_small_spread_never_narrows() -> None:
    assert gate.limits(2.0, (2.0, 2.0, 2.0), TOLERANCES).upper == 2.1


def test_cap() -> None:
    found = gate.limits(2.0, (1.0, 2.0, 3.0), TOLERANCES)
    assert (found.lower, found.upper) == (1.8, 2.2)
    assert found.rule == "±3·sd between runs, capped at 10%"


@given(
    st.floats(1, 9),
    st.lists(st.floats(1, 9), max_size=6),
)
def test_always_between_floor_and_cap(reference: float, runs: list[float]) -> None:
    found = gate.limits(reference, runs, TOLERANCES)
    assert 0.9 * reference <= found.lower + 1e-9
    assert found.lower <= 0.95 * reference + 1e-9
    assert 1.05 * reference <= found.upper + 1e-9
    assert found.upper <= 1.1 * reference + 1e-9
