"""History and gate: what is a measurement, which of two is better, and what may pass."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.decode import points
from tests.decode.points import failed, measured, one_set
from utils import errors
from utils.decode_eval import gate, history, keeping, lease
from utils.decode_eval.__main__ import main
from utils.decode_eval.loop import Session, metrics
from utils.errors import NotMeasured, UsageError
from utils.records import Json

# 32 requests of very different difficulty, and the same with one more accepted token in each.
HARD = [(2 * i, 20) for i in range(1, 33)]
BETTER = [(a + 1, s) for a, s in HARD]


def test_the_last_measurement_of_a_step_counts() -> None:
    rows = [
        measured(10, one_set([(10, 10), (10, 10)])),
        failed(20),
        measured(0, one_set([(0, 10), (0, 10)])),
        measured(10, one_set([(20, 10), (20, 10)])),
    ]
    assert [(r["step"], r["acceptance_length"]) for r in history.measured(rows)] == [
        (0, 1.0),
        (10, 3.0),
    ]


def test_best_goes_by_the_first_set_and_the_earlier_of_equals() -> None:
    low, high = [(10, 10)] * 2, [(20, 10)] * 2
    rows = [
        measured(0, one_set(low, "a"), one_set(high, "b")),
        measured(20, one_set(high, "a"), one_set(low, "b")),
        measured(10, one_set(high, "a"), one_set(low, "b")),
    ]
    best = history.best(rows)
    assert best and best["step"] == 10
    assert history.since_best(rows) == 1
    assert history.best([failed(3)]) is None
    assert history.since_best([failed(3)]) == 0


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{", ":1: not JSON"),
        ('{"acceptance_length": NaN}', ":1: not JSON"),
        ("{}", ":1: "),
        ('{"schema": "decode_eval_result/1", "step": 3}', "is a required property"),
    ],
)
def test_a_broken_line_is_named(text: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / history.FILE
    path.write_text(text + "\n")
    with pytest.raises(NotMeasured, match=where):
        history.read(tmp_path)


def test_history_that_is_not_there(tmp_path: Path) -> None:
    assert history.read(tmp_path) == []
    with pytest.raises(UsageError, match="neither a history nor a folder"):
        history.read(tmp_path / "typo")


def test_difference_is_paired_by_prompt() -> None:
    """What both find hard cancels: a small gain shows that two separate intervals would hide."""
    one, other = one_set(BETTER), one_set(HARD)
    found = gate.difference(one, other)
    assert found.value == pytest.approx(0.05)
    assert found.margin == pytest.approx(0.0, abs=1e-12)
    assert one["lower"] < other["acceptance_length"]


def test_difference_by_hand() -> None:
    """e = (A - R S) / ΣS of one less share times the other's; Var = n / (n - 1) Σ e²."""
    one, other = one_set([(10, 10), (30, 10), (20, 10)]), one_set([(8, 10), (10, 10), (12, 10)])
    found = gate.difference(one, other, 0.5)
    e = [(-10 - 0.5 * -2) / 30, 10 / 30, (0 - 0.5 * 2) / 30]
    error = math.sqrt(3 / 2 * sum(x * x for x in e))
    assert found.value == pytest.approx(3.0 - 0.5 * 2.0)
    assert found.margin == pytest.approx(error * 4.3027, rel=0.08)  # t, 2 degrees of freedom


def check(*words: object) -> int:
    return errors.run(lambda: main(["check", *map(str, words)]))


def test_check_has_an_exit_status_for_each_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, base = tmp_path / "run", tmp_path / "base"
    points.write(run, measured(10, one_set(BETTER)), failed(15), measured(20, one_set(HARD)))
    points.write(base, measured(5, one_set(BETTER)), measured(8, one_set([(1, 20)] * 32)))
    al = 1 + sum(a for a, _ in HARD) / 640
    status = {
        ("--floor", al - 0.5): 0,
        ("--floor", al + 0.5): 1,
        ("--floor", al): 3,  # the interval holds the limit
        ("--reference", base, "--max-drop", 0.05): 0,  # the drop is 0.05 of 2.7
        ("--reference", base, "--max-drop", 0.01): 1,
        ("--reference", base, "--reference-step", "last"): 0,
        ("--reference", base, "--floor", al + 0.5): 1,
        ("--step", 15, "--floor", 1): 3,
        ("--step", 11, "--floor", 1): 3,
        ("--step", "best", "--reference", base, "--max-drop", 0): 0,
        ("--step", "frist", "--floor", 1): 2,
        ("--set", "other", "--floor", 1): 2,
        ("--max-drop", 0.1): 2,
        ("--floor", 1, "--max-drop", 1.5): 2,
    }
    assert {words: check(run, *words) for words in status} == status
    said = capsys.readouterr()
    assert "PASS         step 20 default N=3: tau_real 2.6500 want >= 2.15 (--floor)" in said.out
    assert "interval_holds_limit: the interval holds the limit: measure with more" in said.out
    assert "engine_died: step 15: it died" in said.out
    assert "name a limit: --floor or --reference" in said.err


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        (measured(5, one_set(HARD, requests="b")), "other_requests"),
        (measured(5, one_set(HARD), num_speculative_tokens=4), "other_n"),
        (measured(5, one_set(HARD[:9])), "no_interval"),
        (failed(5), "no_eval"),
    ],
)
def test_what_can_not_be_compared_has_no_verdict(
    base: Json, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    points.write(run, measured(10, one_set(HARD)))
    points.write(other, base)
    assert check(run, "--reference", other) == errors.NOT_MEASURED
    assert reason in capsys.readouterr().out


def test_the_last_eval_failed(tmp_path: Path) -> None:
    """An old good point must not stand in for it."""
    points.write(tmp_path, measured(10, one_set(HARD)), failed(20), failed(30, outcome="skipped"))
    assert check(tmp_path, "--floor", 1) == errors.NOT_MEASURED


def test_one_request_has_no_interval(tmp_path: Path) -> None:
    points.write(tmp_path, measured(10, one_set([(20, 10)])))
    assert check(tmp_path, "--floor", 1) == errors.NOT_MEASURED


def test_compare_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    points.write(one, measured(0, one_set(HARD)), measured(10, one_set(BETTER), tau_sim=2.5))
    points.write(other, measured(0, one_set(HARD)), measured(10, one_set(HARD)), failed(20))
    assert main(["compare", str(one), str(other)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].endswith("no difference shown")
    assert out[2].endswith("+0.0500..+0.0500  one is higher")
    assert main(["history", str(one)]) == 0
    assert "2.500" in capsys.readouterr().out
    assert main(["history", str(other)]) == 0
    assert "failed  engine_died: it died" in capsys.readouterr().out
    points.write(tmp_path, failed(1))
    assert main(["history", str(tmp_path)]) == errors.NOT_MEASURED
    with pytest.raises(NotMeasured, match="no step that can be compared"):
        main(["compare", str(one), str(tmp_path)])


def test_the_table_says_what_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    me = lease.Process.of(os.getpid())
    lease.acquire(tmp_path, 40, me, 60.0)
    lease.enter(tmp_path, me, "boot")
    lease.enter(tmp_path, dataclasses.replace(me, pid=1), "decode")  # not the holder
    assert main(["history", str(tmp_path)]) == errors.NOT_MEASURED
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["40", "at", "boot,", "for"]


def test_evals_that_are_slower_than_the_cadence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    one = [(10, 10)] * 2
    path = points.write(tmp_path, *(measured(step, one_set(one)) for step in (0, 30, 50)))
    keeping.sum_up(points.CONFIG, path, 1)
    assert "this start: 3 measured;" in caplog.text
    assert "take longer than every_steps" not in caplog.text
    history.append(path, [failed(step, "busy", outcome="skipped") for step in (10, 20, 40)])
    keeping.sum_up(points.CONFIG, path, 1)
    assert "3 boundaries were passed over, the points are 25 steps apart" in caplog.text


def test_metrics_of_a_point() -> None:
    two = measured(30, one_set(HARD, "chat"), one_set(BETTER, "code"), tau_sim=3.0)
    values = metrics(two)
    assert values["train/tau_real"] == two["acceptance_length"]
    assert values["train/tau_real_step"] == 30
    assert values["train/tau_gap"] == pytest.approx(3.0 - two["acceptance_length"])
    assert values["train/tau_real/code"] == pytest.approx(2.7)
    assert "train/tau_gap" not in metrics(measured(30, one_set(HARD)))


@pytest.mark.parametrize(("tau_sim", "alarms"), [(None, 0), (2.9, 0), (3.2, 1)])
def test_alarm_when_simulated_and_real_part(
    tau_sim: float | None, alarms: int, caplog: pytest.LogCaptureFixture
) -> None:
    keeping.say(points.CONFIG, measured(30, one_set(HARD), tau_sim=tau_sim))  # 2.65 is real
    assert sum("ALARM: step 30 has tau_sim" in r.getMessage() for r in caplog.records) == alarms


def test_a_line_is_json_of_its_own(tmp_path: Path) -> None:
    path = points.write(tmp_path, measured(10, one_set(HARD)), failed(20))
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [10, 20]


def test_a_session_counts_the_evals_since_the_best(tmp_path: Path) -> None:
    path = points.write(tmp_path, measured(0, one_set(BETTER)), measured(10, one_set(HARD)))
    runner: Any = SimpleNamespace(file=path)
    assert Session(runner).evals_since_best() == 1
    path.write_text("{")  # a history that broke ends no training
    assert Session(runner).evals_since_best() == 0
    assert Session().evals_since_best() == 0


class Arriving:
    """A runner to which results come, and no more."""

    config = points.CONFIG

    def __init__(self, *steps: int) -> None:
        self.rows = [measured(step, one_set(HARD)) for step in steps]

    def collect(self) -> list[Json]:
        arrived, self.rows = self.rows, []
        return arrived

    def maybe_launch(self, *_: object, **__: object) -> bool:
        return False


def test_a_trackers_step_holds_one_point() -> None:
    """Of two at one step a tracker keeps the last."""
    logged: list[tuple[int, float]] = []

    def log(values: dict[str, float], step: int) -> None:
        logged.append((step, values["train/tau_real_step"]))

    session = Session(Arriving(0, 10, 20), log)  # type: ignore[arg-type]
    assert [len(session.step(step, None)) for step in (30, 31, 31, 32)] == [1, 1, 1, 0]
    assert logged == [(30, 0), (31, 10), (32, 20)]
