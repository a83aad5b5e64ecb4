"""Everything that can go wrong beside a training, with real processes: it goes on all the same."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.decode import support
from utils import decode_eval
from utils.decode_eval import DecodeEvalRunner, history, jobs, lease, running, weights
from utils.decode_eval.snapshot import Snapshot
from utils.errors import NotMeasured

WEIGHTS = b"accept=0.7 of the draft tokens"


def measures_the_next_boundary(runner: DecodeEvalRunner, step: int) -> None:
    assert runner.maybe_launch(step, WEIGHTS)
    assert runner.wait(20)
    (row,) = runner.collect()
    assert (row["step"], row["outcome"]) == (step, "measured")
    assert row["acceptance_length"] > 1.5


def test_worker_killed(tmp_path: Path) -> None:
    modes = {"never_ready": True, "ignore_term": True, "daemon": True}
    modes["once"] = str(tmp_path / "once")
    runner = DecodeEvalRunner(support.config(tmp_path, modes), support.export)
    assert runner.maybe_launch(0, WEIGHTS)
    support.until((tmp_path / "once").exists)
    held = lease.read(runner.config.folder)
    assert held and held.phase == "boot"
    os.kill(support.worker_of(runner.config.folder), signal.SIGKILL)
    assert runner.wait(10)
    (row,) = runner.collect()
    assert (row["reason"], row["snapshot"]["size_bytes"]) == ("worker_died", len(WEIGHTS))
    assert "ended with 137" in row["error"]
    assert support.engines(tmp_path) == []
    measures_the_next_boundary(runner, 10)


def test_worker_stopped_is_ended_by_the_trainer(tmp_path: Path) -> None:
    modes = {"never_ready": True, "once": str(tmp_path / "once")}
    runner = DecodeEvalRunner(support.config(tmp_path, modes, timeout_s=1.5), support.export)
    assert runner.maybe_launch(0, WEIGHTS)
    support.until((tmp_path / "once").exists)
    os.kill(support.worker_of(runner.config.folder), signal.SIGSTOP)
    assert runner.wait(20)
    (row,) = runner.collect()
    assert (row["reason"], support.engines(tmp_path)) == ("timed_out", [])
    assert "after its deadline" in row["error"]


def test_shutdown_ends_a_stubborn_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the supervisor itself, which was to end it, has been stopped."""
    monkeypatch.setattr(running, "KILL_MARGIN_S", 0.5)
    modes = {"never_ready": True, "ignore_term": True, "daemon": True}
    runner = DecodeEvalRunner(support.config(tmp_path, modes), support.export)
    assert runner.maybe_launch(0, WEIGHTS)
    support.until(lambda: len(support.engines(tmp_path)) > 2)  # supervisor, engine, daemon
    held = lease.read(runner.config.folder)
    assert held
    held.holder.send(signal.SIGSTOP)
    runner.shutdown()
    assert support.engines(tmp_path) == []
    (row,) = runner.collect()
    assert row["reason"] == "cut_off"
    again = DecodeEvalRunner(support.config(tmp_path, {}), support.export)
    assert again.wait(20)  # nothing is lost: the next start measures it
    assert [(r["step"], r["outcome"]) for r in again.collect()] == [(0, "measured")]


@contextlib.contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """As on a full disk, for us and for what we start: a larger file can't be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_disk_full_for_the_export(tmp_path: Path) -> None:
    runner = DecodeEvalRunner(support.config(tmp_path), support.export)
    with largest_file(100_000):
        for step in range(10):
            assert not runner.maybe_launch(step, WEIGHTS * 10_000)
    (row,) = runner.collect()  # one try for the boundary, not one a step
    assert (row["step"], row["reason"]) == (0, "export_failed")
    assert "File too large" in row["error"]
    assert not jobs.has_weights(tmp_path / "decode_eval" / "step_0")
    measures_the_next_boundary(runner, 10)


def test_disk_full_for_the_worker_and_the_history(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = DecodeEvalRunner(support.config(tmp_path), support.export)
    old = {**jobs.blank(runner.config, 99, 1), "outcome": "skipped", "reason": "busy"}
    history.append(runner.file, [old] * 8)
    with largest_file(4000):  # the job fits, the AL record and the history don't
        assert runner.maybe_launch(0, WEIGHTS)
        assert runner.wait(20)
        (row,) = runner.collect()
        assert row["reason"] == "measurement_failed"
        assert "al_default.json: can't be written (File too large)" in row["error"]
        assert len(history.read(runner.file)) == 8
    assert runner.collect() == []
    assert caplog.text.count("the history waits to be written") == 1
    assert history.read(runner.file)[8:] == [row]  # written once there is room
    measures_the_next_boundary(runner, 10)


ODD = ["", '{"step": 0', "[1, 2]", '{"step": 0, "outcome": "measured"}']


def test_odd_result(tmp_path: Path) -> None:
    runner = DecodeEvalRunner(support.config(tmp_path), support.export)
    assert runner.maybe_launch(0, WEIGHTS)
    result = tmp_path / "decode_eval" / "step_0" / jobs.RESULT
    support.until(result.exists)
    held = lease.read(runner.config.folder)
    assert held
    support.until(lambda: not held.holder.alive())
    job = jobs.read(result.parent)
    for text in ODD:
        result.write_text(text)
        found = running.Running(job, held.holder, 0.0).conclude()
        assert (found["outcome"], found["reason"]) == ("failed", "unreadable_result")
    (row,) = runner.collect()
    assert row["reason"] == "unreadable_result"
    assert runner.collect() == []  # said once
    assert [r["reason"] for r in history.read(runner.file)] == ["unreadable_result"]
    assert DecodeEvalRunner(runner.config, support.export).collect() == []


def test_port_stolen(tmp_path: Path) -> None:
    mark = tmp_path / "steal"
    modes = {"steal": str(mark), "once": str(tmp_path / "once")}
    runner = DecodeEvalRunner(support.config(tmp_path, modes), support.export)
    assert runner.maybe_launch(0, WEIGHTS)
    support.until(lambda: mark.exists() and mark.read_text())
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", int(mark.read_text())))
        thief.listen()
        Path(f"{mark}.done").touch()
        assert runner.wait(20)
    (row,) = runner.collect()
    assert row["outcome"] == "measured"
    log = (tmp_path / "decode_eval" / "step_0" / jobs.LOG).read_text()
    assert "was taken by somebody else; starting again" in log


@pytest.mark.parametrize("when", ["before", "while_the_engine_loads"])
def test_weights_that_change_are_not_measured(when: str, tmp_path: Path) -> None:
    mark = tmp_path / "steal"  # the engine waits there, before it reads the weights
    runner = DecodeEvalRunner(support.config(tmp_path, {"steal": str(mark)}), support.export)
    file = tmp_path / "decode_eval" / "step_0" / "model" / "consolidated" / weights.FILE

    def export(folder: Path) -> Snapshot:
        made = support.export(WEIGHTS, folder)
        if when == "before":
            file.write_bytes(file.read_bytes() + b"more")
        return made

    assert runner.launch(0, export)
    if when != "before":
        support.until(lambda: mark.exists() and mark.read_text())
        file.write_bytes(file.read_bytes().replace(b"0.7", b"0.8"))  # of the same size
        Path(f"{mark}.done").touch()
    assert runner.wait(20)
    (row,) = runner.collect()
    assert (row["reason"], row["acceptance_length"]) == ("weights_changed", None)
    assert "has changed since its export" in row["error"]
    started = (tmp_path / "decode_eval" / "step_0" / jobs.ENGINE_LOG).exists()
    assert started == (when != "before")  # no engine is paid for in vain


def test_proxies_and_the_job_are_kept_from_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launched from a thread that ends: a parent-death signal would come then already."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    job = {"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "h", "TORCHELASTIC_RUN_ID": "x"}
    job |= {"PET_NNODES": "1", "OMP_NUM_THREADS": "1", "NCCL_DEBUG": "INFO", "SLURM_JOB_ID": "5"}
    job |= {"CUDA_VISIBLE_DEVICES": "0,1", "SGLANG_SIMULATE_ACC_LEN": "3"}
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    seen = tmp_path / "environ.json"
    runner = DecodeEvalRunner(support.config(tmp_path, {"environ_to": str(seen)}), support.export)

    def launch() -> None:
        assert runner.maybe_launch(0, WEIGHTS)
        support.until(lease.path(runner.config.folder).exists)  # its supervisor is at work

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    assert runner.wait(20)
    assert [row["outcome"] for row in runner.collect()] == ["measured"]
    environ = json.loads(seen.read_text())
    assert not {*job, "http_proxy", "HTTP_PROXY", "ALL_PROXY"} & (
        environ.keys() - {"CUDA_VISIBLE_DEVICES"}
    )
    assert environ["CUDA_VISIBLE_DEVICES"] == ""


def test_equal_failures_open_the_circuit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(model: bytes, folder: Path) -> Any:
        raise ValueError("no such head")

    runner = DecodeEvalRunner(support.config(tmp_path, max_failures=2), broken)
    for step in (0, 10, 20, 30, 40):
        assert not runner.maybe_launch(step, WEIGHTS)
    reasons = [row["reason"] for row in history.read(runner.file)]
    assert reasons == ["export_failed"] * 2 + ["circuit_open"] * 3
    said = [r.getMessage() for r in caplog.records if "in a row" in r.getMessage()]
    assert len(said) == 1 and "2 evals in a row failed with export_failed" in said[0]
    runner.rearm()
    assert not runner.maybe_launch(50, WEIGHTS)
    assert [row["reason"] for row in runner.collect()][-1] == "export_failed"


def test_the_result_of_another_start_is_not_taken(tmp_path: Path) -> None:
    runner = DecodeEvalRunner(support.config(tmp_path, {"never_ready": True}), support.export)
    assert runner.maybe_launch(0, WEIGHTS)
    support.until(lambda: support.engines(tmp_path))
    pid = support.worker_of(runner.config.folder)
    row = {**jobs.blank(runner.config, 0, 99), "reason": "x", "error": "y"}
    (tmp_path / "decode_eval" / "step_0" / jobs.RESULT).write_text(json.dumps(row))
    os.kill(pid, signal.SIGKILL)
    assert runner.wait(10)
    assert [row["reason"] for row in runner.collect()] == ["other_result"]


def test_nothing_is_raised_into_the_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that somebody removes, a tracker that fails, a bug: each is told, none ends it."""

    def tracker(values: dict[str, float], step: int) -> None:
        raise ConnectionError("the tracker is down")

    caplog.set_level("INFO")
    config = support.config(tmp_path)
    with decode_eval.session(config, export=support.export, log_metrics=tracker) as session:
        session.step(0, WEIGHTS, tau_sim=float("nan"))
        assert session.runner and session.runner.wait(20)
        assert [row["outcome"] for row in session.step(1, WEIGHTS)] == ["measured"]
        shutil.rmtree(config.folder)
        config.folder.write_text("in the way")
        session.step(10, WEIGHTS)
        session.runner._cadence = None  # type: ignore[assignment]  # as a bug would
        session.step(20, WEIGHTS)
        session.finish()  # the end of the block has nothing left to do
    assert "step 0: tau_sim nan is left out" in caplog.text
    assert "the tracker is down" in caplog.text
    assert "step 10 is not measured, export_failed" in caplog.text
    assert "maybe_launch failed; training goes on" in caplog.text
    assert caplog.text.count("this start: ") == 1


def test_a_device_is_held_against_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with lease.devices(["test-a", "test-b"]):
        with (
            pytest.raises(NotMeasured, match="device test-b is held") as error,
            lease.devices(["test-c", "test-b"]),
        ):
            pytest.fail("two engines on one device")
        assert error.value.reason == "device_busy"
        with lease.devices(["test-c"]):  # let go of when test-b was not to be had
            pass
    with lease.devices(["test-b"]):
        pass
