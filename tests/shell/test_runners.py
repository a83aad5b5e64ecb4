"""Launchers without a cluster: what each would start, docker, the import of an image."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shell.conftest import FAKES, ROOT, TWIN
from tests.shell.launched import RUNNERS, Launched

GOLDEN = Path(__file__).parent / "golden" / "launch"
UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
SETTINGS = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/runner",
    "HARNESS_PYTHON": sys.executable,
    "DRY_RUN": "1",
    "IMAGE": "nvcr.io/nvidia/engine:1.2",
    "CONC": "32",
    "ISL": "8192",
    "OSL": "1024",
    "MAX_MODEL_LEN": "16384",
    "TP": "8",
    "HF_TOKEN": "hf_not_to_be_seen",
}
# Launcher → what it is told beside SETTINGS, and the recipe.
LAUNCHERS = {
    "b200-dgxc": ({}, "dsv4_fp4_b200_vllm_mtp"),
    "b300-nv": ({"MODEL_PATH": "/scratch/models/dsv4"}, "dsv4_fp4_b300_sglang"),
    "docker": ({"NODE_HW": "b300", "MODEL_PATH": "/models/dsv4"}, "dsv4_fp4_b300_vllm"),
    "gb200-nv": ({"DP_SIZE": "4"}, "dsv4_fp4_gb200_dynamo-vllm_mtp"),
    "gb300-nv": ({"TP": "4"}, "dsv4_fp4_gb300_dynamo-sglang_mtp"),
}


def launched(launcher: str, recipe: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    script = str(RUNNERS / f"launch_{launcher}.sh")
    return subprocess.run(
        ["bash", script, recipe], env=env, capture_output=True, text=True, check=False, cwd="/"
    )


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_a_launcher_starts(launcher: str) -> None:
    """Its own steps and the first of its recipe; UPDATE_GOLDEN=1 writes the files anew."""
    told, recipe = LAUNCHERS[launcher]
    done = launched(launcher, recipe, SETTINGS | told)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.replace(sys.executable, "PYTHON").replace(str(ROOT), "ROOT").splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    text = "".join(f"{line}\n" for line in lines[: steps.index("ready") + 1])
    user = f'"{os.getuid()}:{os.getgid()}"'
    text = text.replace(user, '"USER:GROUP"')
    if UPDATE:
        (GOLDEN / f"{launcher}.jsonl").write_text(text)
    assert text == (GOLDEN / f"{launcher}.jsonl").read_text()
    assert SETTINGS["HF_TOKEN"] not in done.stdout + done.stderr
    assert steps[-1] == "throughput", "no evals were asked for"
    assert not Path("/tmp/specgate-launch.DRY_RUN").exists()


def test_every_launcher_is_looked_at() -> None:
    names = {path.stem.removeprefix("launch_") for path in RUNNERS.glob("launch_*.sh")}
    assert names == LAUNCHERS.keys() | {"local"}
    assert {path.stem for path in GOLDEN.iterdir()} == LAUNCHERS.keys()


@pytest.mark.parametrize(
    ("launcher", "recipe", "told", "message"),
    [
        ("b300-nv", "nosuch", {}, "there is no recipe nosuch"),
        ("b300-nv", "dsv4_fp4_b200_vllm", {}, "is for b200, b300-nv has b300"),
        ("b300-nv", "dsv4_fp4_b300_vllm", {}, "b300-nv has no weights of dsv4_fp4 (there are dsr1"),
        ("b200-dgxc", "dsv4_fp4_b200_vllm", {"TP": "16"}, "takes 16 GPUs, a node of b200-dgxc has"),
        ("b200-dgxc", "dsv4_fp4_b200_vllm", {"IMAGE": ""}, "set IMAGE"),
        ("b200-dgxc", "dsv4_fp4_b200_vllm", {"IMAGE": "a b"}, "IMAGE is 'a b'"),
        ("gb200-nv", TWIN.stem, {"TP": "1"}, "takes one node; this launcher starts many"),
        ("docker", "dsv4_fp4_b300_vllm", {}, "set NODE_HW"),
    ],
)
def test_what_cannot_be_is_refused(
    launcher: str, recipe: str, told: dict[str, str], message: str
) -> None:
    env = SETTINGS | ({"MODEL_PATH": "/m"} if recipe == TWIN.stem else {}) | told
    done = launched(launcher, recipe, env)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert done.stdout == ""


def test_a_python_that_starts_no_module_has_no_verdict() -> None:
    """It ends with 1, as the gate does when a value failed."""
    done = launched("b300-nv", TWIN.stem, SETTINGS | {"HARNESS_PYTHON": "/bin/false"})
    assert done.returncode == 3


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Launched]:
    launch = Launched(tmp_path)
    launch.fake("docker")
    launch.in_image()
    launch.environment |= {"NODE_HW": "b300"}
    yield launch
    launch.end()


def test_docker_runs_as_the_caller(docker: Launched) -> None:
    assert docker.run("docker", TWIN.stem, RUN_EVAL="true") == 0, docker.out
    assert docker.clients()[-1] == "report"
    words = (docker.folder / "docker.log").read_text().split()
    assert words[words.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
    assert f"{ROOT}:{ROOT}:ro" in words
    assert f"{docker.results}:{docker.results}" in words
    assert docker.record()["reason"] is None
    assert docker.alive() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_docker_is_stopped(docker: Launched, number: signal.Signals) -> None:
    run = docker.start("docker", TWIN.stem, clients={"bench": {"linger_s": 60}})
    docker.wait_until(lambda: "bench" in docker.clients())
    run.send_signal(number)
    assert run.wait(20) == 128 + number
    assert docker.alive() == []
    assert "stop --time=6 container1" in (docker.folder / "docker.log").read_text()


def test_a_container_that_never_started_is_the_infrastructures_fault(docker: Launched) -> None:
    (docker.folder / "bin" / "docker").unlink()
    (docker.folder / "bin" / "docker").write_text("#!/bin/sh\necho no such image >&2; exit 125\n")
    (docker.folder / "bin" / "docker").chmod(0o755)
    assert docker.run("docker", TWIN.stem) == 3
    assert docker.record()["reason"] == "allocation_failed"
    assert "no such image" in docker.out


def imported(folder: Path, enroot: str = "") -> subprocess.Popen[str]:
    """One import of two that run at once, with enroot faked."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("enroot", "unsquashfs"):
        if not (programs / name).exists():
            (programs / name).symlink_to(FAKES / "bin" / name)
    if enroot:
        (programs / "enroot").unlink()
        (programs / "enroot").write_text(f"#!/bin/sh\n{enroot}\n")
        (programs / "enroot").chmod(0o755)
    return subprocess.Popen(
        ["bash", str(RUNNERS / "import_image.sh"), "docker://x", str(folder / "images" / "x.sqsh")],
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_one_import_of_two_at_once(tmp_path: Path) -> None:
    runs = [imported(tmp_path) for _ in range(2)]
    said = sorted(run.communicate()[0].split()[1] for run in runs)
    image = str(tmp_path / "images" / "x.sqsh")
    assert said == sorted(["imported", image])
    assert (tmp_path / "images" / "x.sqsh").read_text() == "squashfs of docker://x\n"


@pytest.mark.parametrize(
    "enroot", ["printf squash >$3; exit 1", "printf squash >$3", "printf nothing >/dev/null"]
)
def test_an_image_that_is_not_whole_never_appears(tmp_path: Path, enroot: str) -> None:
    run = imported(tmp_path, enroot)
    run.communicate()
    assert run.returncode
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["x.sqsh.lock"]
