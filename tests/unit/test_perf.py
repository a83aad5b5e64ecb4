"""The benches' own arithmetic; the figures are `make bench`'s."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.perf import __main__ as bench
from tests.perf.measure import Line, cost, installed, python


@pytest.mark.parametrize(
    ("line", "kept", "ratio"),
    [
        (Line("x", 1.5, 1.0, "s", 1.5, is_ratio=True), True, 1.5),
        (Line("x", 1.6, 1.0, "s", 1.5, is_ratio=True), False, 1.6),
        (Line("x", 0.15, 0.01, "s", 0.15), True, 15.0),
        (Line("x", 0.16, 0.01, "s", 0.15), False, 16.0),
        (Line("x", 1.0, None, "s", 1.5, is_ratio=True), False, None),
        (Line("x", 9.0, None, "s"), True, None),
    ],
)
def test_a_limit_is_kept_or_not(line: Line, kept: bool, ratio: float | None) -> None:
    assert line.kept is kept
    assert line.ratio == pytest.approx(ratio)
    assert ("NOT KEPT" in bench.show(line)) is not kept


def test_cost_is_that_of_the_command_alone(tmp_path: Path) -> None:
    with installed() as env:
        idle = cost(python("-c", "pass"), tmp_path, env)
        # Linux counts the parent's size at the fork in: idle is no more than an upper bound.
        more = int(idle.peak_mib + 100)
        busy = cost(python("-c", f"x = bytearray({more} << 20); sum(range(10**7))"), tmp_path, env)
        with pytest.raises(RuntimeError, match="status 3"):
            cost(python("-c", "raise SystemExit(3)"), tmp_path, env)
    assert 0 < idle.cpu_s < busy.cpu_s
    assert busy.peak_mib > more


def test_an_unknown_bench_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["nothing"]) == 2
    assert "cold_start" in capsys.readouterr().out
