"""What a launcher checks and hands over; images' names; whose fault a failure was."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from utils.errors import NotMeasured, UsageError
from utils.recipes import settings
from utils.runners import images, prepare, wait_job
from utils.runners.facility import Docker, Slurm, Unanswered, ask
from utils.runners.job import Launch

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "benchmarks" / "single_node" / "smollm2_bf16_cpu_vllm_mtp.sh"
GIVEN = {"MODEL_PATH": "/m", "TP": "1", "CONC": "4", "ISL": "8", "OSL": "8", "MAX_MODEL_LEN": "64"}
CLUSTER = prepare.Cluster("b300-nv", "b300", 8, "none", "/images", "/tmp")


@pytest.mark.parametrize(
    ("image", "uri"),
    [
        ("vllm/vllm-openai:v0.32.0", "docker://vllm/vllm-openai:v0.32.0"),
        ("nvcr.io/nvidia/x:1", "docker://nvcr.io#nvidia/x:1"),
        ("nvcr.io#nvidia/x:1", "docker://nvcr.io#nvidia/x:1"),
        ("localhost:5000/x", "docker://localhost:5000#x"),
        ("ubuntu", "docker://ubuntu"),
    ],
)
def test_enroot_takes_the_registry_apart(image: str, uri: str) -> None:
    assert images.enroot_uri(image) == uri


def test_two_images_never_share_a_file() -> None:
    given = ["a/b:c", "a:b/c", "a/b@c", "a+b:c", "a/b#c"]
    assert len({images.file_name(image) for image in given}) == len(given)
    assert not any("/" in images.file_name(image) for image in given)


def test_run_env_holds_what_is_allowed_and_is_its_owners_alone(tmp_path: Path) -> None:
    given = GIVEN | {"HF_TOKEN": "hf'x y", "AWS_SECRET": "s", "PATH": "/x", "IMAGE": "i"}
    asked = settings.load(RECIPE, prepare.environment_of(RECIPE, CLUSTER, given))
    file = tmp_path / "run.env"
    prepare.write_run_env(file, prepare.handed_over(asked, given, "python3"))
    assert file.stat().st_mode & 0o777 == 0o600
    read = subprocess.run(
        ["bash", "-c", f"set -a; source {file}; env"],
        env={},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert {"HF_TOKEN=hf'x y", "IMAGE=i", "CONC=4", "HARNESS_PYTHON=python3"} <= set(read)
    assert {"AWS_SECRET=s", "PATH=/x"} & set(read) == set()
    with pytest.raises(FileExistsError):
        prepare.write_run_env(file, {})


def test_secrets_are_in_no_word_for_the_launcher(tmp_path: Path) -> None:
    cluster = prepare.Cluster("b300-nv", "b300", 8, "none", "/images", str(tmp_path))
    words = prepare.prepare(RECIPE, cluster, GIVEN | {"HF_TOKEN": "hf_secret"})
    assert not any("hf_secret" in word for word in words)
    assert f"mount={ROOT}:{ROOT}:ro" in words
    assert "mount=/m:/m:ro" in words


def test_no_new_folder_under_workspace() -> None:
    cluster = prepare.Cluster("b300-nv", "b300", 8, "none", "/images", "/workspace/new/runs")
    with pytest.raises(UsageError, match="RUNS_DIR /workspace/new/runs would be a new folder"):
        prepare.prepare(RECIPE, cluster, GIVEN)
    assert not Path("/workspace/new").exists()


@pytest.mark.parametrize(
    ("changed", "given", "message"),
    [
        ({"container": "podman"}, {}, "CONTAINER is 'podman': known: docker, none, pyxis"),
        ({"runs_dir": "/proc/new"}, {}, "RUNS_DIR /proc/new: "),
        ({}, {"MODEL_PATH": "/a b"}, "'/a b' can't be mounted"),
        ({}, {"RESULT_DIR": "/tmp/a,b", "DRY_RUN": "1"}, "'/tmp/a,b' can't be mounted"),
        ({}, {"SPEEDBENCH_DIR": "/a:b"}, "'/a:b' can't be mounted"),
    ],
)
def test_what_no_container_could_have_is_refused(
    changed: dict[str, str], given: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        prepare.prepare(RECIPE, dataclasses.replace(CLUSTER, **changed), GIVEN | given)


def test_the_weights_are_found_by_cluster_model_and_precision() -> None:
    recipe = ROOT / "benchmarks" / "single_node" / "qwen3.5_fp8_b300_vllm.sh"
    found = prepare.environment_of(recipe, CLUSTER, {})
    assert found["MODEL_PATH"] == "/scratch/models/Qwen3.5-397B-A17B-FP8"
    assert found["MODEL"] == "Qwen/Qwen3.5-397B-A17B-FP8"
    assert prepare.environment_of(recipe, CLUSTER, {"MODEL_PATH": "/x"})["MODEL_PATH"] == "/x"


def test_a_job_without_any_answer_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotMeasured, match="Slurm has not answered 30 times"):
        wait_job.wait(Slurm("x", tmp_path), 0.0)


def test_a_command_that_does_not_answer_is_named() -> None:
    with pytest.raises(Unanswered, match=r"sleep did not answer within 0\.1 s"):
        ask(["sleep", "5"], 0.1)
    with pytest.raises(Unanswered, match="false: exit status 1"):
        ask(["false"], 5)
    with pytest.raises(Unanswered, match="/no/such: No such file"):
        ask(["/no/such"], 5)


@pytest.mark.parametrize(
    ("status", "phase", "reason"),
    [
        ("0\n", "running", None),
        ("1\n", "running", None),
        ("3\n", "running", None),
        ("137\n", "running", "step_killed"),
        ("127\n", "running", "step_killed"),
        ("", "running", "step_lost"),
        (None, "running", "step_lost"),
        (None, "starting", "step_not_started"),
        (None, "doctor", "node_unfit"),
        (None, "image", "image_import_failed"),
        (None, None, "allocation_failed"),
    ],
)
def test_whose_fault_it_was(
    tmp_path: Path, status: str | None, phase: str | None, reason: str | None
) -> None:
    for name, text in (("status", status), ("phase", phase)):
        if text is not None:
            (tmp_path / name).write_text(text)
    found = Launch(tmp_path, tmp_path, Docker(tmp_path)).blame("")
    assert (found.name if found else None) == reason


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("TIMEOUT", "time_limit"),
        ("CANCELLED", "cancelled"),
        ("NODE_FAIL", "node_failed"),
        ("PREEMPTED", "preempted"),
        ("OUT_OF_MEMORY", "out_of_memory"),
        ("COMPLETED", "step_killed"),
    ],
)
def test_slurm_names_the_cause(tmp_path: Path, state: str, reason: str) -> None:
    (tmp_path / "status").write_text("143\n")
    launch = Launch(tmp_path, tmp_path, Slurm("x", tmp_path))
    found = launch.blame(f"JobId=7 JobName=x\n   JobState={state} Reason=None")
    assert found is not None
    assert found.name == reason
