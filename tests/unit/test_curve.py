"""Several cells of one curve, judged together."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from utils import records
from utils.golden import cell_test, curve, interval, registry
from utils.golden.gate import Judgement
from utils.golden.interval import Shift
from utils.golden.registry import Golden
from utils.verdicts import Outcome, Verdict

TOLERANCES = records.read_yaml(registry.FOLDER / registry.TOLERANCES, "tolerances")
PASS, FAIL, UNDECIDED = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE


def published(*percents: float) -> list[Shift]:
    return [interval.assumed(2 * (1 + p / 100), 2.0, 0, 0.015) for p in percents]


def decided(*percents: float) -> str:
    return " ".join(outcome.value for outcome in curve.decide(published(*percents), TOLERANCES))


def test_holm() -> None:
    assert curve.holm([0.004, 0.02, 0.001], 0.01) == [True, False, True]
    assert curve.holm([0.006, 0.006], 0.01) == [False, False]  # neither is below 0.005
    assert curve.holm([0.004, 0.004, 0.004], 0.01) == [False] * 3
    assert curve.holm([math.nan, 0.0], 0.01)[0] is False


@pytest.mark.parametrize(
    ("percents", "expected"),
    [
        ((0, 0), "pass pass pass"),
        ((-4, 0, 0, 0), "pass pass pass pass pass"),  # alone, the first is undecided
        ((-4.9, -4.9), "inconclusive inconclusive inconclusive"),  # so is the curve
        ((-5.6, 0, 0, 0), "inconclusive pass pass pass pass"),  # alone, the first fails
        ((-15, 0, 0, 0), "fail pass pass pass pass"),
        ((-20, 0, 0, 0), "fail pass pass pass fail"),
        ((-7, -7, -7, -7), "fail fail fail fail fail"),
        ((-5.4, -5.4, -5.4), "inconclusive inconclusive inconclusive fail"),
    ],
)
def test_cells_and_curve(percents: Sequence[float], expected: str) -> None:
    assert decided(*percents) == expected


def test_eight_honest_cells_fail_no_more_often_than_one() -> None:
    chance, wrong = random.Random(5), {"one": 0, "eight": 0, "points": 0}
    for _ in range(1500):
        logs = [chance.gauss(0, 0.015 * 2**0.5) for _ in range(8)]
        shifts = [Shift(2 * math.exp(x), 2.0, x, 0.015 * 2**0.5, None, "") for x in logs]
        wrong["one"] += cell_test.decide(shifts[0], TOLERANCES) is FAIL
        wrong["eight"] += FAIL in curve.decide(shifts, TOLERANCES)
        wrong["points"] += not all(cell_test.within(shift, TOLERANCES) for shift in shifts)
    assert wrong["eight"] <= 0.02 * 1500  # at most 1 % is the rule, 2 % beyond chance here
    assert wrong["points"] > 0.1 * 1500


def test_mean_shift() -> None:
    alone = curve.mean_shift(published(0, 0, 0, 0))
    assert alone.standard_error == pytest.approx(published(0)[0].standard_error / 2)
    assert alone.degrees is None
    pairs = [
        Shift(2.2, 2.0, 0.1, error, degrees, "") for error, degrees in ((0.01, 79), (0.03, 60))
    ]
    together = curve.mean_shift(pairs)
    assert (together.standard_error, together.degrees) == (0.02, 60)
    assert together.measured == pytest.approx(2.2)


def judged(n: int, percent: float, file: str = "a_b.yaml", interval: bool = True) -> Judgement:
    key = {"num_speculative_tokens": n, "thinking": "on", "chat_template_kwargs": {"x": None}}
    golden = Golden(file, key, "a", True, "s", 2.0, ())
    [shift] = published(percent)
    outcome = cell_test.decide(shift, TOLERANCES)
    reason = "" if outcome is PASS else "below_golden" if outcome is FAIL else "undecided"
    verdict = Verdict(outcome, f"AL on N={n}", "acceptance_length", reason=reason, detail=reason)
    return Judgement(verdict, 2.0, golden, shift if interval else None)


def test_verdicts_say_what_changed() -> None:
    cells = [judged(1, -5.6), judged(2, 0), judged(4, -4), judged(8, 0)]
    assert [one.verdict.outcome for one in cells] == [FAIL, PASS, UNDECIDED, PASS]
    first, second, third, _, whole = curve.joint(cells, TOLERANCES)
    assert (first.outcome, first.reason) == (UNDECIDED, "undecided")
    assert "of so many cells one may lie so far off by chance" in first.detail
    assert second == cells[1].verdict
    assert (third.outcome, third.reason, third.detail) == (PASS, "", "")
    assert third.source.endswith("decided with 4 cells of its curve")
    assert (whole.outcome, whole.cell) == (PASS, "AL on curve N=1,2,4,8")
    assert "mean over 4 draft lengths" in whole.source


def test_a_curve_that_fails_says_on_which_side() -> None:
    *_, low = curve.joint([judged(n, -7) for n in (1, 2, 3)], TOLERANCES)
    *_, high = curve.joint([judged(n, 9) for n in (1, 2, 3)], TOLERANCES)
    assert (low.outcome, low.reason) == (FAIL, "below_golden")
    assert (high.outcome, high.reason) == (FAIL, "above_golden")


@pytest.mark.parametrize(
    "others",
    [
        [],
        [judged(2, 0, file="other.yaml")],  # another curve
        [judged(2, 0, interval=False)],  # a point
        [Judgement(Verdict(Outcome.NOT_MEASURED, "AL off N=3", "acceptance_length"), None)],
    ],
)
def test_who_takes_no_part_keeps_its_verdict(others: list[Judgement]) -> None:
    cells = [judged(1, -5.6), *others]
    assert curve.joint(cells, TOLERANCES) == [one.verdict for one in cells]
