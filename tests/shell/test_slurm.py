"""Launches on a real Slurm of one node: whatever ends one, no job and no process is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shell.conftest import TWIN
from tests.shell.launched import Launched
from tests.shell.launches import (
    CLUSTER,
    EVALS,
    SLOW_EVAL,
    STUBBORN_EVAL,
    in_eval,
    job_of,
    nothing_left,
)
from tests.shell.slurm import KILL_WAIT_S, PARTITIONS, Cluster


@pytest.fixture(scope="module")
def out_of_time(
    slurm: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Launched, subprocess.Popen[bytes]]]:
    """Slurm looks at time limits every 30 s: started first, looked at last."""
    launched = Launched(tmp_path_factory.mktemp("out_of_time"), slurm.environment)
    run = in_eval(launched)
    slurm.ask("scontrol", "update", f"jobid={job_of(launched)}", "EndTime=now+1")
    yield launched, run
    launched.end()


def test_a_run_ends_with_its_recipes_status_and_leaves_evidence(
    out_of_time: object, launch: Launched
) -> None:
    secret = "hf_not_to_be_seen"
    assert launch.run(CLUSTER, TWIN.stem, **EVALS, HF_TOKEN=secret, STRAY="1") == 0, launch.out
    assert launch.clients()[-2:] == ["validate_scores", "report"]
    record = launch.record()
    assert (record["status"], record["step_status"], record["reason"]) == (0, 0, None)
    assert record["notes"] == []
    assert "gate: 2 of 2 results" in (launch.results / "launch.log").read_text()
    assert "JobState=COMPLETED" in (launch.results / "launch_job.txt").read_text()
    assert "== free -m" in (launch.results / "node.log").read_text()
    environment = (launch.folder / "vllm.log").read_text().partition("--- env\n")[2]
    assert f"HF_TOKEN={secret}\n" in environment
    assert "STRAY=1" not in environment, "only what run.env names crosses over"
    written = [p.read_bytes() for p in launch.results.rglob("*") if p.is_file()]
    assert not any(secret.encode() in text for text in [launch.out.encode(), *written])
    strangers = [p for p in launch.folder.rglob("*") if p.lstat().st_uid != os.getuid()]
    assert strangers == []
    assert launch.alive() == []


@pytest.mark.parametrize("status", [1, 3])
def test_a_verdict_is_handed_on(launch: Launched, status: int) -> None:
    told = {"validate_scores": {"status": status}}
    assert launch.run(CLUSTER, TWIN.stem, clients=told, **EVALS) == status
    assert (launch.record()["step_status"], launch.record()["reason"]) == (status, None)


@pytest.mark.parametrize("doctor", [2, 3], ids=["unfit", "crashed"])
def test_an_unfit_node_runs_nothing(launch: Launched, doctor: int) -> None:
    assert launch.run(CLUSTER, TWIN.stem, clients={"recipes": {"status": doctor}}) == 3
    assert launch.record()["reason"] == "node_unfit"
    assert launch.clients() == ["recipes"]


def test_a_bad_environment_is_refused_before_an_allocation(
    launch: Launched, slurm: Cluster
) -> None:
    before = slurm.ask("scontrol", "show", "job", "-o").count("JobId=")
    assert launch.run(CLUSTER, TWIN.stem, CONC="many") == 2
    assert "CONC is 'many'" in launch.out
    assert launch.run(CLUSTER, "dsv4_fp4_b200_vllm") == 2
    assert "is for b200, b300-nv has b300" in launch.out
    assert launch.run(CLUSTER, "dsv4_fp4_b300_vllm", MODEL_PATH="") == 2
    assert "b300-nv has no weights of dsv4_fp4" in launch.out
    assert launch.run(CLUSTER, TWIN.stem, TP="16") == 2
    assert "takes 16 GPUs, a node of b300-nv has 8" in launch.out
    assert launch.run(CLUSTER, TWIN.stem, CONTAINER="pyxis") == 2
    assert "set IMAGE" in launch.out
    assert slurm.ask("scontrol", "show", "job", "-o").count("JobId=") == before


@pytest.mark.parametrize(
    ("number", "status", "clients", "workers"),
    [
        (signal.SIGINT, 130, STUBBORN_EVAL, ["stubborn", "daemon"]),
        (signal.SIGTERM, 143, SLOW_EVAL, ["polite"]),
    ],
    ids=["INT", "TERM"],
)
def test_a_cancel_of_the_launcher(
    launch: Launched,
    slurm: Cluster,
    number: signal.Signals,
    status: int,
    clients: Any,
    workers: list[str],
) -> None:
    run = in_eval(launch, clients, engine={"workers": workers})
    run.send_signal(number)
    time.sleep(0.2)
    run.send_signal(number)
    assert run.wait(20) == status
    nothing_left(launch, slurm)
    assert launch.record()["reason"] == "interrupted"
    meta = (launch.results / "meta_env.json").read_text()
    assert '"failed_eval_concs": [\n    8\n  ]' in meta, "the recipe could say what it had"


def test_the_launcher_is_killed(launch: Launched, slurm: Cluster) -> None:
    run = in_eval(launch)
    job = job_of(launch)
    run.kill()
    run.wait(1)
    assert list(launch.runs.rglob("run.env")) == [], "a token may be in it"
    launch.wait_until(lambda: not launch.alive(), KILL_WAIT_S + 8)
    launch.wait_until(lambda: not slurm.ask("squeue", "-h", "-j", job, "-t", "RUNNING"), 10)


def test_scancel(launch: Launched, slurm: Cluster) -> None:
    run = in_eval(launch)
    slurm.ask("scancel", job_of(launch))
    assert run.wait(60) == 3
    nothing_left(launch, slurm)
    record = launch.record()
    assert (record["reason"], record["step_status"]) == ("cancelled", 143)
    assert "launch: infrastructure, cancelled: Slurm says CANCELLED" in launch.out
    assert (launch.results / "meta_env.json").exists()


@pytest.mark.parametrize(
    ("words", "reason", "status"),
    [(["bash", str(TWIN)], "step_killed", 137), (["SUPERVISOR"], "step_lost", None)],
    ids=["recipe", "step"],
)
def test_a_kill_on_the_node(
    launch: Launched, slurm: Cluster, words: list[str], reason: str, status: int | None
) -> None:
    run = in_eval(launch)
    pid = launch.pid_of("bash", str(TWIN))
    if words == ["SUPERVISOR"]:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    assert run.wait(60) == 3
    nothing_left(launch, slurm)
    assert (launch.record()["reason"], launch.record()["step_status"]) == (reason, status)


def test_a_cancel_in_the_queue(launch: Launched, slurm: Cluster) -> None:
    slurm.ask("scontrol", "update", f"partition={PARTITIONS[0]}", "state=DOWN")
    try:
        run = launch.start(CLUSTER, TWIN.stem)
        launch.wait_until(lambda: "PENDING" in slurm.ask("squeue", "-h", "-o", "%T"))
        run.send_signal(signal.SIGINT)
        assert run.wait(10) == 130
        nothing_left(launch, slurm)
        assert launch.clients() == []
    finally:
        slurm.ask("scontrol", "update", f"partition={PARTITIONS[0]}", "state=UP")


def test_no_allocation(launch: Launched) -> None:
    assert launch.run("b200-dgxc", TWIN.stem) == 3, "its partition isn't here"
    assert launch.record()["reason"] == "allocation_failed"
    assert "invalid partition" in launch.out


def test_squeue_hangs(launch: Launched, slurm: Cluster) -> None:
    launch.fake("squeue")
    assert launch.run(CLUSTER, TWIN.stem) == 0, launch.out
    assert launch.record()["notes"] == ["squeue did not answer within 5 s"]
    assert "launch: squeue did not answer within 5 s" in launch.out
    nothing_left(launch, slurm)


def test_two_launches_import_one_image_once(
    launch: Launched, slurm: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Launched(tmp_path_factory.mktemp("other"), slurm.environment)
    images = launch.folder / "images"
    images.mkdir()
    (images / "vllm%2fx%3a1.sqsh").write_text("garbage of a launch that died")
    (images / "vllm%2fx%3a1.sqsh.part.1").write_text("squash")
    for one in (launch, other):
        one.in_image()
        one.environment["IMAGE_DIR"] = str(images)
    runs = [one.start(CLUSTER, TWIN.stem) for one in (launch, other)]
    assert [run.wait(60) for run in runs] == [0, 0], launch.out + other.out
    logs = [one.folder / "enroot.log" for one in (launch, other)]
    assert sum(len(log.read_text().splitlines()) for log in logs if log.exists()) == 1
    assert sorted(p.name for p in images.iterdir()) == [
        "vllm%2fx%3a1.sqsh",
        "vllm%2fx%3a1.sqsh.lock",
    ]
    assert (images / "vllm%2fx%3a1.sqsh").read_text() == "squashfs of docker://vllm/x:1\n"
    pyxis = (launch.folder / "pyxis.log").read_text()
    assert f"{launch.results}:{launch.results}" in pyxis
    assert "--container-remap-root" in pyxis
    nothing_left(other, slurm)


def test_an_import_that_fails(launch: Launched, slurm: Cluster) -> None:
    launch.in_image()
    images = launch.folder / "images"
    (launch.folder / "bin" / "enroot").unlink()
    (launch.folder / "bin" / "enroot").write_text("#!/bin/sh\nprintf squash >$3\nexit 1\n")
    (launch.folder / "bin" / "enroot").chmod(0o755)
    assert launch.run(CLUSTER, TWIN.stem, IMAGE_DIR=str(images)) == 3
    assert launch.record()["reason"] == "image_import_failed"
    assert [path.name for path in images.iterdir()] == ["vllm%2fx%3a1.sqsh.lock"]
    nothing_left(launch, slurm)


def test_the_time_limit(
    out_of_time: tuple[Launched, subprocess.Popen[bytes]], slurm: Cluster
) -> None:
    launch, run = out_of_time
    assert run.wait(60) == 3
    nothing_left(launch, slurm)
    record = launch.record()
    assert (record["reason"], record["step_status"]) == ("time_limit", 143)
    assert (launch.results / "meta_env.json").exists()
