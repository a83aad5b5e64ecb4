"""The benches' own arithmetic; the figures are `make bench`'s."""

from __future__ import annotations

import json
import math
import random
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


def test_the_simulated_gate_draws_the_shift_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import numpy as np

    from tests.perf import golden_gate, simulated_runs

    accepted, steps = simulated_runs.draws(np.random.default_rng(1), 400, math.log(0.92), runs=2)
    lengths = 1 + accepted.sum(axis=(0, 2)) / steps.sum(axis=(0, 2))
    assert lengths[0] / lengths[1] == pytest.approx(0.92, abs=0.005)
    per_run = steps.sum(axis=2)
    assert per_run.mean() == pytest.approx(28_000, rel=0.15)  # as in published runs: 28k to 47k

    monkeypatch.setattr(golden_gate, "REPEATS", 40)
    monkeypatch.setattr(golden_gate, "REPEATS_OF_CURVES", 20)
    lines = golden_gate.run()
    names = [line.name for line in lines]
    assert len(set(names)) == len(names)
    limits = {line.name: line.limit for line in lines}
    assert limits["no shift: wrong fail"] == limits["early, -8%: wrong pass"] == 1.0


def test_replicates_are_judged_by_the_gate(tmp_path: Path) -> None:
    from tests.perf import replicates

    chance = random.Random(2)

    def one(share: float) -> list[list[int]]:
        return [[sum(chance.random() < share for _ in range(90)), 30] for _ in range(32)]

    runs = tmp_path / "runs.jsonl"
    lines = [{"drafter": "good", "rows": one(0.5)} for _ in range(8)]
    lines += [{"drafter": "worse", "rows": one(0.3)} for _ in range(2)]
    runs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    replicates.main(["study", str(runs), str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["one_golden_run"]["judgements"] == 8 * 7
    assert found["one_golden_run"]["covers_no_shift"] > 0.8
    assert found["worse"]["five_golden_runs"]["fail"] == 1.0

    lines.append(lines[0])
    runs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ValueError, match="they are no replicates"):
        replicates.main(["study", str(runs), str(tmp_path / "out.json")])
