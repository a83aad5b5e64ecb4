"""Shares of documents against published values and figures by hand."""

from __future__ import annotations

import pytest

from utils.evals import proportion


def test_wilson_and_newcombe_against_published_values() -> None:
    """Newcombe 1998, table II, example (a): 56/70 and 48/80, 0.0524 to 0.3339 by method 10."""
    lower, upper = proportion.difference(48 / 80, 80, 56 / 70, 70)
    assert (round(lower, 4), round(upper, 4)) == (0.0524, 0.3339)
    lower, upper = proportion.wilson(0.0, 10)
    assert lower == pytest.approx(0.0, abs=1e-12)
    assert round(upper, 4) == 0.2775


@pytest.mark.parametrize(
    ("share", "samples", "half"),
    [  # the first: all right on both sides, and there is still room for a difference
        (1.0, 48, 0.0741),
        (0.9, 48, 0.1298),
        (0.9, 1319, 0.0230),
    ],
)
def test_a_difference_that_could_be_missed(share: float, samples: int, half: float) -> None:
    found = proportion.difference(share, samples, share, samples)
    assert found == pytest.approx((-half, half), abs=1e-4)


@pytest.mark.parametrize(
    ("one", "other", "p_value"),
    [  # by hand: z of the first is 0.1 / 0.050498 = 1.9803
        ((0.9, 100), (0.8, 100), 0.04767),
        ((0.5, 1000), (0.5, 500), 1.0),
        ((1.0, 48), (1.0, 48), 1.0),
    ],
)
def test_p_value(one: tuple[float, int], other: tuple[float, int], p_value: float) -> None:
    assert proportion.p_value(*one, *other) == pytest.approx(p_value, abs=1e-5)
