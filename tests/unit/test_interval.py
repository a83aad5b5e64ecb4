from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from utils.golden import interval

Rows = list[tuple[int, int]]


def run(p: Sequence[float], chance: random.Random, steps: int = 40) -> Rows:
    """One run: every step of prompt i accepts each of three drafts with p[i], until one fails."""
    rows = []
    for share in p:
        lengths = [next((k for k in range(3) if chance.random() >= share), 3) for _ in range(steps)]
        rows.append((sum(lengths), steps))
    return rows


def test_no_difference_is_no_shift() -> None:
    rows = [(i, 10) for i in range(1, 21)]
    found = interval.paired(rows, [rows], 3, 8)
    assert found
    assert (found.estimate, found.standard_error, found.degrees) == (0.0, 0.0, 19)
    assert found.measured == found.reference == 1 + 210 / 200
    assert found.chance() == 1.0


def test_by_hand() -> None:
    """Equal weights where steps are equal: the plain mean of the log ratios and its error."""
    rows, golden = [(10, 10), (20, 10), (15, 10)], [(10, 10), (10, 10), (10, 10)]
    found = interval.paired(rows, [golden], 3, 3)
    ratios = [math.log(x / 2.0) for x in (2.0, 3.0, 2.5)]
    mean = sum(ratios) / 3
    error = math.sqrt(sum((x - mean) ** 2 for x in ratios)) / 3 / (1 - 1 / 3)
    assert found
    assert found.estimate == pytest.approx(mean)
    assert found.standard_error == pytest.approx(error)


def test_of_equal_runs_none_is_favoured_by_being_the_new_one() -> None:
    """Logs of few steps are too small, the more so the fewer: pooling the golden's would shift."""
    chance, total = random.Random(11), 0.0
    for _ in range(100):
        mine, *golden = (run([0.6] * 30, chance, steps=3) for _ in range(5))
        found = interval.paired(mine, golden, 3, 8)
        assert found
        total += found.estimate
    assert abs(total / 100) < 0.013  # of 4 % each


def test_longer_answers_weigh_more() -> None:
    golden = [(100, 100)] * 10
    rows = [(10, 10)] * 5 + [(1500, 1000)] * 5
    found = interval.paired(rows, [golden], 3, 8)
    assert found
    assert found.estimate > 0.5 * math.log(2.5 / 2)


def test_where_prompts_spread_anyway_longer_answers_hardly_weigh_more() -> None:
    """Eight prompts with shifts of 0.6 on both sides of 0, the long ones of 0.3."""
    golden = [(1000, 1000)] * 8
    shifts = [(0.6, 10), (-0.6, 10)] * 2 + [(0.9, 1000), (-0.3, 1000)] * 2
    rows = [(round((2 * math.exp(shift) - 1) * steps), steps) for shift, steps in shifts]
    found = interval.paired(rows, [golden], 3, 8)
    assert found
    assert found.estimate == pytest.approx(0.15, abs=0.03)  # by their steps alone, 0.3


def test_prompts_without_a_step_are_left_out_of_the_pairs_only() -> None:
    rows = [(12, 10)] * 8 + [(0, 0), (5, 5)]
    golden = [(12, 10)] * 8 + [(9, 9), (0, 0)]
    found = interval.paired(rows, [golden], 3, 8)
    assert found
    assert found.rule == "paired over 8 prompts"
    assert found.measured == 1 + 101 / 85
    assert interval.paired(rows, [golden], 3, 9) is None


@pytest.mark.parametrize("all_or_nothing", [0, 3])
def test_drafters_without_any_spread(all_or_nothing: int) -> None:
    rows = [(all_or_nothing * 10, 10)] * 8
    found = interval.paired(rows, [rows], 3, 8)
    assert found
    assert found.standard_error == 0.0


def test_coverage_with_a_spread_between_runs() -> None:
    """200 pairs of runs of 40 unlike prompts: the 95 % interval holds no shift about as often."""
    chance, hits = random.Random(3), 0
    for _ in range(200):
        own = [chance.betavariate(6, 4) for _ in range(40)]
        wobble = [[p + chance.uniform(-0.04, 0.04) for p in own] for _ in range(2)]
        found = interval.paired(run(wobble[0], chance), [run(wobble[1], chance)], 3, 8)
        assert found
        hits += abs(found.estimate) <= found.reach(0.975)
    assert 180 <= hits <= 198


def test_step_variance() -> None:
    assert interval.step_variance(0.5, 1) == pytest.approx(0.25 / 1.5**2)  # one coin
    assert interval.step_variance(1.5, 3) == pytest.approx(1.25 / 2.5**2)  # 0..3, all as likely
    assert interval.step_variance(3, 3) == interval.LEAST_STEP_VARIANCE


def test_between_runs() -> None:
    found = interval.between_runs(2.2, 2.0, [1.9, 2.0, 2.1])
    logs = [math.log(x) for x in (1.9, 2.0, 2.1)]
    mean = sum(logs) / 3
    spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / 2)
    assert found.standard_error == pytest.approx(spread * math.sqrt(4 / 3))
    assert (found.degrees, found.estimate) == (2, pytest.approx(math.log(1.1)))


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (0, math.hypot(0.015 * math.sqrt(2), 0.01 / math.sqrt(12) / 2)),  # rounded, too
        (1, 0.015 * math.sqrt(2)),
        (3, 0.015 * math.sqrt(4 / 3)),
    ],
)
def test_assumed(runs: int, expected: float) -> None:
    found = interval.assumed(2.0, 2.0, runs, 0.015)
    assert found.standard_error == pytest.approx(expected)
    assert found.degrees is None
    missing = interval.assumed(2.0, 2.0, runs, 0.015, 0.03, 9)
    assert missing.standard_error == pytest.approx(math.hypot(expected, 0.03))
    assert missing.degrees == 9


def test_chance_and_reach_agree() -> None:
    found = interval.assumed(2.1, 2.0, 1, 0.015)
    for degrees in (None, 4, 79):
        shift = interval.Shift(2.1, 2.0, found.estimate, 0.02, degrees, "")
        half = shift.reach(1 - shift.chance() / 2)
        assert half == pytest.approx(shift.estimate, rel=1e-6)
    assert interval.Shift(2.1, 2.0, 0.05, 0.0, None, "").chance() == 0.0
