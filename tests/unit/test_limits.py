"""One cell's decision: what passes, what fails, and what nobody can tell."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utils import records
from utils.evals.al_record import Figures
from utils.golden import cell_test, registry
from utils.golden.interval import Shift
from utils.golden.registry import Golden
from utils.verdicts import Outcome

TOLERANCES = records.read_yaml(registry.FOLDER / registry.TOLERANCES, "tolerances")
PASS, FAIL, UNDECIDED = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE


def shift(percent: float, standard_error: float, estimate: float | None = None) -> Shift:
    """Of that many percent; estimate: of the interval, where that is another."""
    log = math.log1p((percent if estimate is None else estimate) / 100)
    return Shift(2 * (1 + percent / 100), 2.0, log, standard_error / 100, None, "known")


def test_limits_are_the_floor() -> None:
    found = cell_test.limits(2.0, TOLERANCES)
    assert (found.lower, found.upper, found.rule) == (1.9, 2.1, "±5%")


@pytest.mark.parametrize(
    ("percent", "standard_error", "outcome"),
    [
        (0.0, 0.0, PASS),
        (-5.0, 0.0, PASS),
        (5.0, 0.0, PASS),
        (-5.001, 0.0, FAIL),
        (5.001, 0.0, FAIL),
        # -8 % is 0.0834 as a log: 2.326 standard errors must fit in between.
        (0.0, 3.58, PASS),
        (0.0, 3.59, UNDECIDED),
        (-4.0, 1.82, PASS),
        (-4.0, 1.84, UNDECIDED),
        (4.0, 1.89, PASS),
        (4.0, 1.91, UNDECIDED),
        # Outside, 2.576 of them must not reach no shift.
        (-6.0, 2.40, FAIL),
        (-6.0, 2.41, UNDECIDED),
        (6.0, 2.26, FAIL),
        (6.0, 2.27, UNDECIDED),
        (-30.0, 13.0, FAIL),
        (-30.0, 14.0, UNDECIDED),
    ],
)
def test_decision(percent: float, standard_error: float, outcome: Outcome) -> None:
    assert cell_test.decide(shift(percent, standard_error), TOLERANCES) is outcome


def test_the_estimate_and_the_al_must_agree() -> None:
    """A pass needs both; a fail needs both on the same side."""
    assert cell_test.decide(shift(-4.0, 0.5, estimate=-8.0), TOLERANCES) is UNDECIDED
    assert cell_test.decide(shift(-6.0, 0.5, estimate=0.0), TOLERANCES) is UNDECIDED
    assert cell_test.decide(shift(-6.0, 0.5, estimate=6.0), TOLERANCES) is UNDECIDED
    assert cell_test.decide(shift(-6.0, 0.5, estimate=-3.0), TOLERANCES) is FAIL


def test_a_smaller_error_rate_decides_less() -> None:
    assert cell_test.decide(shift(-4.0, 1.8), TOLERANCES, 0.001) is UNDECIDED
    assert cell_test.decide(shift(-6.0, 2.3), TOLERANCES, 0.001) is UNDECIDED


def test_few_degrees_of_freedom_decide_less() -> None:
    few = replace(shift(-4.0, 1.8), degrees=3)
    assert cell_test.decide(few, TOLERANCES) is UNDECIDED


@given(st.floats(-60, 150), st.floats(0, 20), st.sampled_from([None, 3, 79]))
def test_undecided_lies_between(percent: float, error: float, degrees: int | None) -> None:
    """A wider interval never turns a verdict into its opposite, nor a doubt into a verdict."""
    sharp = cell_test.decide(shift(percent, error), TOLERANCES)
    wide = replace(shift(percent, 1.5 * error), degrees=degrees)
    assert cell_test.decide(wide, TOLERANCES) in (sharp, UNDECIDED)
    assert (sharp is PASS) <= (-5 <= percent <= 5)


@pytest.mark.parametrize("field", ["measured", "reference", "estimate", "standard_error"])
def test_nan_passes_nothing(field: str) -> None:
    broken = replace(shift(0.0, 1.0), **{field: math.nan})  # type: ignore[arg-type]
    assert cell_test.decide(broken, TOLERANCES) is UNDECIDED


def test_description_names_the_interval_that_decides() -> None:
    inside = cell_test.describe(shift(-1.0, 1.0), TOLERANCES)
    assert inside == "shift -1.0%, 98% interval -3.3%..+1.3%, known"
    outside = cell_test.describe(shift(-10.0, 1.0), TOLERANCES, 0.001)
    assert outside == "shift -10.0%, 99.9% interval -12.9%..-7.0%, known"


class TestAgainst:
    """Which spread is used: paired, between the golden's runs, assumed, or none."""

    ROWS = tuple((12 + i % 3, 10) for i in range(8))

    def found(self, rows: tuple[tuple[int, int], ...] = ROWS) -> Figures:
        accepted, steps = (sum(column) for column in zip(*self.ROWS, strict=True))
        return Figures(2, 1 + accepted / steps, accepted, steps, (), None, rows)

    def golden(
        self, runs: int = 1, prompts: int = 8, rows: tuple[tuple[int, int], ...] = ROWS
    ) -> Golden:
        key = {"num_speculative_tokens": 3, "prompts": prompts}
        lengths = tuple(2.3 + 0.01 * i for i in range(runs))
        return Golden("f", key, "p", runs == 0, "s", 2.3, lengths, 80, (rows,) if rows else ())

    def rule(self, found: Figures, golden: Golden) -> str:
        shift = cell_test.against(found, golden, TOLERANCES)
        assert shift is None or (shift.measured, shift.reference) == (found.acceptance_length, 2.3)
        return shift.rule if shift else "point"

    def test_paired_where_both_have_rows(self) -> None:
        assert self.rule(self.found(), self.golden()) == "paired over 8 prompts"

    @pytest.mark.parametrize(
        ("rows", "golden_rows"),
        [
            ((), ROWS),
            (ROWS, ()),
            (ROWS[:-1], ROWS),  # ours are not
            (((1, 1), *ROWS[1:]), ROWS),  # not what the counters say
            (((0, 0), *ROWS[1:]), ((12, 10), *ROWS[1:])),
            (ROWS, ((0, 0), *ROWS[1:])),  # a pair too few
            (ROWS, ROWS[:-1]),  # the golden's are not of all prompts
            (((25, 20), *ROWS[2:]), ROWS),  # two prompts in one
        ],
    )
    def test_not_paired(
        self, rows: tuple[tuple[int, int], ...], golden_rows: tuple[tuple[int, int], ...]
    ) -> None:
        assert self.rule(self.found(rows), self.golden(rows=golden_rows)) == "point"

    def test_spread_between_five_runs(self) -> None:
        assert self.rule(self.found(()), self.golden(runs=5)) == "spread of its 5 runs"
        assert self.rule(self.found(()), self.golden(runs=4)) == "point"

    @pytest.mark.parametrize("runs", [0, 4])
    def test_assumed_for_a_workload_of_the_published_size(self, runs: int) -> None:
        golden = self.golden(runs, prompts=80, rows=())
        assert self.rule(self.found(), golden) == "spread assumed (1.5% a run)"
        assert self.rule(self.found(), self.golden(runs, prompts=79, rows=())) == "point"
