"""A training that dies, and its next start: nothing is left running, repeated or lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.decode import support
from utils.decode_eval import DecodeEvalRunner, history, jobs, lease

TRAINER = Path(__file__).with_name("trainer.py")
STEPPED_CLOCK = Path(__file__).with_name("stepped_clock")


def start(folder: Path, first: int, last: int, *more: str, **env: str) -> Any:
    words = [sys.executable, str(TRAINER), str(folder), str(first), str(last), *more]
    with (folder / "trainer.log").open("ab") as log:
        return subprocess.Popen(words, env=support.environment(**env), stdout=log, stderr=log)


def train(folder: Path, first: int, last: int) -> None:
    """A start of training to its end."""
    trainer = start(folder, first, last)
    status = trainer.wait(60)
    assert status == 0, (folder / "trainer.log").read_text()


def write_block(folder: Path, modes: dict[str, Any] | None = None, **fields: Any) -> Path:
    found = support.block(folder, modes, **fields)
    (folder / "block.json").write_text(json.dumps(found))
    return Path(found["output_dir"])


def story(output: Path) -> list[tuple[int, int, str]]:
    """(step, start, outcome or reason) of every line."""
    return [(r["step"], r["attempt"], r["reason"] or r["outcome"]) for r in history.read(output)]


def logged(folder: Path) -> list[int]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train/tau_real_step"] for line in lines]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_trainer_killed(tmp_path: Path, number: int) -> None:
    modes = {"never_ready": True, "ignore_term": True, "daemon": True}
    modes["once"] = str(tmp_path / "once")
    output = write_block(tmp_path, modes, on_busy="queue_latest", at_end=False, max_failures=2)
    trainer = start(tmp_path, 0, 15, "hold")
    support.until((tmp_path / "once").exists)
    support.until((tmp_path / "holding").exists)
    if number == signal.SIGKILL:  # and the worker can't see it: the next start must end it
        os.kill(support.worker_of(output), signal.SIGSTOP)
    trainer.send_signal(number)
    trainer.wait(5)
    if number == signal.SIGTERM:
        support.until(lambda: support.engines(tmp_path) == [], 10, "the engine outlived training")
        support.until(lambda: lease.read(output) is None)
    train(tmp_path, 16, 20)  # step 0 ran and 10 waited: both are measured now, and no failures
    assert story(output) == [
        (0, 1, "abandoned"),
        (10, 1, "abandoned"),
        (0, 2, "measured"),
        (10, 2, "measured"),
        (20, 2, "measured"),
    ]
    assert logged(tmp_path) == [0, 10, 20]
    assert support.engines(tmp_path) == []


def test_finish_without_the_trainer(tmp_path: Path) -> None:
    output = write_block(tmp_path, {"slow_s": 0.5}, on_trainer_exit="finish")
    trainer = start(tmp_path, 0, 2, "hold")
    support.until(lambda: support.engines(tmp_path))
    trainer.kill()
    trainer.wait(5)
    train(tmp_path, 3, 4)  # while it runs: it is adopted, not started again
    assert story(output) == [(0, 1, "measured"), (4, 2, "measured")]
    assert logged(tmp_path) == [0, 4]


def test_a_result_that_came_in_between_is_told_once(tmp_path: Path) -> None:
    output = write_block(tmp_path, on_trainer_exit="finish", at_end=False)
    trainer = start(tmp_path, 0, 2, "hold")
    support.until(lambda: support.engines(tmp_path))
    trainer.kill()
    trainer.wait(5)
    support.until((output / "step_0" / jobs.RESULT).exists)
    support.until(lambda: support.engines(tmp_path) == [])
    for _ in range(2):
        train(tmp_path, 3, 4)
    assert story(output) == [(0, 1, "measured")]
    assert logged(tmp_path) == [0]


def test_resume_and_rollback_repeat_nothing(tmp_path: Path) -> None:
    output = write_block(tmp_path, on_busy="queue_latest")
    train(tmp_path, 0, 10)
    assert story(output) == [(0, 1, "measured"), (10, 1, "measured")]
    train(tmp_path, 7, 20)  # back to a checkpoint of step 6, over 10 again
    assert story(output)[2:] == [(20, 2, "measured")]
    train(tmp_path, 25, 27)  # 20 passed before this start looked for the first time
    assert story(output)[3:] == [(27, 3, "measured")]
    digests = {row["snapshot"]["sha256"] for row in history.measured(history.read(output))}
    assert len(digests) == 4


def test_two_starts_never_measure_at_once(tmp_path: Path) -> None:
    """Even where the second one can't know: the worker itself takes the lease."""
    modes = {"never_ready": True, "once": str(tmp_path / "once")}
    config = support.config(tmp_path, modes)
    first, second = (DecodeEvalRunner(config, support.export) for _ in range(2))
    assert first.maybe_launch(0, b"one")
    support.until((tmp_path / "once").exists)
    assert second.launch_model(5, b"two")
    assert second.wait(20)
    (row,) = second.collect()
    assert (row["reason"], row["step"]) == ("busy", 5)
    assert "the eval of step 0 still runs" in row["error"]
    first.shutdown()
    assert support.engines(tmp_path) == []


def test_a_lease_of_another_process_with_the_same_id_is_void(tmp_path: Path) -> None:
    me = lease.Process.of(os.getpid())
    lease.acquire(tmp_path, 7, me, 60.0)
    assert lease.read(tmp_path)
    data = json.loads(lease.path(tmp_path).read_text())
    for field, value in (("started_ticks", 1), ("boot_id", "another boot")):
        changed = {**data, "holder": {**data["holder"], field: value}}
        lease.path(tmp_path).write_text(json.dumps(changed))
        assert lease.read(tmp_path) is None
    far = {**data["holder"], "host": "elsewhere", "pid": 1}
    lease.path(tmp_path).write_text(json.dumps({**data, "holder": far}))
    assert lease.read(tmp_path)  # nobody here can say, so it holds until its deadline
    late = {**data, "holder": far, "started": "2020-01-01T00:00:00Z"}
    lease.path(tmp_path).write_text(json.dumps(late))
    assert lease.read(tmp_path) is None


def test_a_new_job_leaves_no_old_result(tmp_path: Path) -> None:
    """Should its worker end without one, the old one must not stand for it."""
    runner = DecodeEvalRunner(support.config(tmp_path, {"never_ready": True}), support.export)
    old = tmp_path / "decode_eval" / "step_0" / jobs.RESULT
    old.parent.mkdir()
    old.write_text(json.dumps({**jobs.blank(runner.config, 0, 1), "reason": "x", "error": "y"}))
    assert runner.maybe_launch(0, b"weights")
    assert not old.exists()
    runner.shutdown()


def test_clock_step(tmp_path: Path) -> None:
    """The time of day jumps under trainer, worker and engine while the eval runs."""
    trainings = {}
    for jump_s in (-200_000, 200_000):
        folder = tmp_path / str(jump_s)
        folder.mkdir()
        set_clock(folder, 0)
        path = f"{support.ROOT}{os.pathsep}{STEPPED_CLOCK}"
        env = {"PYTHONPATH": path, "SPECGATE_CLOCK": str(folder / "clock")}
        engine_env = {**support.block(folder, {"slow_s": 0.5})["engine_env"], **env}
        write_block(folder, engine_env=engine_env, at_end=False, timeout_s=50)
        trainings[jump_s] = folder, start(folder, 0, 9, "hold", **env)
    for jump_s, (folder, _) in trainings.items():
        support.until((folder / "holding").exists)
        support.until(lambda folder=folder: support.engines(folder))  # type: ignore[misc]
        set_clock(folder, jump_s)
        (folder / "holding").unlink()
    for folder, trainer in trainings.values():
        assert trainer.wait(60) == 0, (folder / "trainer.log").read_text()
        (row,) = history.read(folder / "decode_eval")
        assert row["outcome"] == "measured"
        assert 0 < row["seconds"]["boot"] < 50
        assert row["started"][:10] != row["finished"][:10]  # the jump was seen, and did no harm


def set_clock(folder: Path, offset_s: int) -> None:
    (folder / "new").write_text(str(offset_s))
    (folder / "new").replace(folder / "clock")
