from __future__ import annotations

import math
import random

import pytest

from utils.acceptance.estimate import (
    acceptance_length,
    clustered_standard_error,
    estimate,
    student_t,
    student_t_tail,
)
from utils.errors import NotMeasured


def test_acceptance_length_counts_the_bonus_token() -> None:
    assert acceptance_length(37, 20) == 2.85
    assert acceptance_length(0, 20) == 1.0


def test_no_step_is_no_value() -> None:
    with pytest.raises(NotMeasured, match="proposed nothing"):
        acceptance_length(0, 0)


def test_pooled_and_per_request_means_differ() -> None:
    found = estimate(
        accepted=12, steps=10, drafted=30, per_position=[6, 4, 2], rows=[(2, 2), (10, 8)]
    )
    assert found.acceptance_length == 2.2
    assert found.mean_request_acceptance_length == pytest.approx((2.0 + 2.25) / 2)
    assert found.per_position == (0.6, 0.4, 0.2)
    assert found.conditional == pytest.approx((0.6, 4 / 6, 0.5))
    assert found.draft_acceptance_rate == 0.4


def test_conditional_is_unknown_where_nothing_got_so_far() -> None:
    found = estimate(accepted=0, steps=5, drafted=15, per_position=[0, 0, 0], rows=[])
    assert found.conditional == (0.0, None, None)
    assert (found.standard_error, found.lower, found.mean_request_acceptance_length) == (None,) * 3


def test_standard_error_by_hand() -> None:
    # R = 12/10; residuals -0.4 and 0.4; Var = 2/1 * 0.32 / 100.
    assert clustered_standard_error([(2, 2), (10, 8)]) == pytest.approx(math.sqrt(2 * 0.32) / 10)
    assert clustered_standard_error([(2, 2)]) is None


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    """400 simulated runs of 40 prompts with unlike prompts: coverage near 95 %."""
    chance = random.Random(1)
    truth, hits = 1 + 0.6, 0
    for _ in range(400):
        rows = []
        for _ in range(40):
            p, steps = chance.betavariate(6, 4), 20
            rows.append((sum(chance.random() < p for _ in range(steps)), steps))
        accepted, total = sum(a for a, _ in rows), sum(s for _, s in rows)
        found = estimate(
            accepted=accepted, steps=total, drafted=total, per_position=[accepted], rows=rows
        )
        assert found.lower is not None
        assert found.upper is not None
        hits += found.lower <= truth <= found.upper
    assert 0.92 <= hits / 400 <= 0.98


@pytest.mark.parametrize(
    ("probability", "degrees", "table"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.3027),
        (0.975, 3, 3.1824),
        (0.975, 31, 2.0395),
        (0.975, 79, 1.99045),
        (0.995, 4, 4.6041),
        (0.99, 79, 2.3745),
        (0.9995, 7, 5.4079),
    ],
)
def test_student_t_against_the_printed_table(
    probability: float, degrees: int, table: float
) -> None:
    assert student_t(probability, degrees) == pytest.approx(table, rel=2e-5)
    assert student_t_tail(table, degrees) == pytest.approx(2 * (1 - probability), rel=2e-4)


def test_student_t_without_a_tail() -> None:
    assert student_t(0.5, 5) == pytest.approx(0.0, abs=1e-9)
    assert student_t_tail(0.0, 4) == 1.0
