"""When an eval is due, as (steps looked at, when those are due) stories."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.decode import points
from utils import decode_eval
from utils.decode_eval.cadence import Cadence


def fired(cadence: Cadence, steps: Iterable[int]) -> list[int]:
    found = []
    for step in steps:
        if cadence.due(step):
            cadence.take(step)
            found.append(step)
    return found


@pytest.mark.parametrize(
    ("more", "measured", "looks", "due"),
    [
        ((0,), (), range(35), [0, 10, 20, 30]),
        ((), (), range(35), [10, 20, 30]),
        ((0,), (), range(1, 35), [10, 20, 30]),  # step 0 was never offered
        ((0,), (), range(0, 40, 7), [0, 14, 21, 35]),  # looked at every seventh step alone
        ((0, 3, 25), (), range(35), [0, 3, 10, 20, 25, 30]),
        ((0,), (0, 10), range(10, 35), [20, 30]),  # resumed on a boundary that is measured
        ((0,), (0, 10), range(13, 35), [20, 30]),
        ((0,), (0, 10, 20), range(5, 35), [30]),  # rolled back: measured ones stay
        ((0,), (0, 12), range(5, 25), [20]),  # 12 was the look after boundary 10
        ((0,), (), range(13, 35), [20, 30]),  # resumed into an empty folder: 10 has passed
        ((0,), (), [40], [40]),
    ],
)
def test_due(
    more: tuple[int, ...], measured: tuple[int, ...], looks: range, due: list[int]
) -> None:
    cadence = Cadence(10, more)
    for step in measured:
        cadence.take(step)
    assert fired(cadence, looks) == due


def test_a_boundary_that_was_skipped_waits_for_the_next_one() -> None:
    """The grid stays the same for every run: nothing fires between two boundaries."""
    cadence = Cadence(10, ())
    assert cadence.due(10)
    cadence.take(10)  # busy, and skipped
    assert [step for step in range(11, 20) if cadence.due(step)] == []
    assert cadence.due(20)


def test_ranks_above_0_know_the_boundaries_and_do_nothing_else(tmp_path: Path) -> None:
    config = dataclasses.replace(points.CONFIG, output_dir=str(tmp_path / "out"))
    environ = {"RANK": "1"}
    with decode_eval.session(config, environ=environ) as evals:
        assert [step for step in range(25) if evals.boundary(step)] == [0, 10, 20]
        assert evals.step(10, None) == []
        assert not evals.measure(11, None)
    assert not config.folder.exists()


def test_a_session_that_is_off_does_nothing() -> None:
    with decode_eval.session(None) as evals:
        assert (evals.step(0, None), evals.boundary(0), evals.finish()) == ([], False, [])
