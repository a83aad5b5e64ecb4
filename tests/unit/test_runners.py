"""What a launcher checks and hands over; images' names; disaggregated jobs; remote servers."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from utils import records
from utils.errors import NotMeasured, UsageError
from utils.recipes import lint, settings
from utils.runners import images, prepare, srt, wait_job
from utils.runners.facility import Docker, Slurm, Unanswered, ask
from utils.runners.job import Launch
from utils.serving import remote
from utils.serving.launch import Command

ROOT = Path(__file__).resolve().parents[2]
NODES = ROOT / "benchmarks" / "multi_node"
RECIPE = ROOT / "benchmarks" / "single_node" / "smollm2_bf16_cpu_vllm_mtp.sh"
PAIR = NODES / "dsv4_fp4_gb200_dynamo-vllm_mtp.sh"
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


def test_the_weights_are_found_by_cluster_model_and_precision() -> None:
    recipe = ROOT / "benchmarks" / "single_node" / "qwen3.5_fp8_b300_vllm.sh"
    found = prepare.environment_of(recipe, CLUSTER, {})
    assert found["MODEL_PATH"] == "/scratch/models/Qwen3.5-397B-A17B-FP8"
    assert found["MODEL"] == "Qwen/Qwen3.5-397B-A17B-FP8"
    assert prepare.environment_of(recipe, CLUSTER, {"MODEL_PATH": "/x"})["MODEL_PATH"] == "/x"


def test_options_become_fields() -> None:
    words = ["--a", "1", "--b", "--c", '{"d": 1}']
    assert srt.options(words) == {"a": "1", "b": True, "c": '{"d": 1}'}
    for wrong in (["x"], ["--a", "1", "2"], ["--a", "--a"]):
        with pytest.raises(UsageError):
            srt.options(wrong)


def written(folder: Path, recipe: Path, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", str(recipe)],
        env={
            "PATH": os.environ["PATH"],
            "MODEL": "deepseek-ai/DeepSeek-V4-Pro",
            **{"TP": "8", "DP_SIZE": "4", "CONC": "32", "ISL": "8192", "OSL": "1024"},
            "MAX_MODEL_LEN": "9280",
            "RESULT_DIR": str(folder),
            "LAUNCH_JOB": str(folder / "job.yaml"),
            "LAUNCH_NAME": "specgate-1",
            "LAUNCH_PARTITION": "batch",
            "LAUNCH_ACCOUNT": "benchmark",
            "LAUNCH_IMAGE": "/images/x.sqsh",
            "LAUNCH_STEP": "bash step.sh",
            "LAUNCH_MOUNTS": "/repo:/repo:ro,/results:/results",
            "LAUNCH_GPUS_PER_NODE": "4",
            "LAUNCH_TIME_LIMIT_MIN": "95",
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("recipe", sorted(NODES.glob("*_mtp.sh")), ids=lambda path: path.stem)
def test_a_job_of_srt_slurm(recipe: Path, tmp_path: Path) -> None:
    assert written(tmp_path, recipe) == (0, "")
    job = records.parse_yaml(tmp_path / "job.yaml")
    vllm = "vllm" in recipe.stem
    roles = job["backend"]["vllm_config" if vllm else "sglang_config"]
    gb200 = "gb200" in recipe.stem
    assert job["resources"] == {
        "gpu_type": "gb200" if gb200 else "gb300",
        "gpus_per_node": 4,
        "prefill_nodes": 2 if gb200 else 1,
        "prefill_workers": 1,
        "gpus_per_prefill": 8 if gb200 else 4,
        "decode_nodes": 8,
        "decode_workers": 4,
        "gpus_per_decode": 8,
    }
    assert job["benchmark"] == {"type": "custom", "command": "bash step.sh"}
    assert job["slurm"] == {"time_limit": "1:35:00"}
    assert job["container_mounts"] == {"/repo": "/repo", "/results": "/results"}
    drafts = "speculative-config" if vllm else "speculative-num-steps"
    assert drafts in roles["decode"]
    assert (drafts in roles["prefill"]) == (vllm and gb200), "as its page does"
    assert records.parse_yaml(tmp_path / "srtslurm.yaml")["default_partition"] == "batch"
    assert (tmp_path / "srt_job.yaml").read_text() == (tmp_path / "job.yaml").read_text()


def test_an_older_engine_gets_its_own_names(tmp_path: Path) -> None:
    assert written(tmp_path, PAIR, ENGINE_VERSION="0.27.1") == (0, "")
    roles = records.parse_yaml(tmp_path / "job.yaml")["backend"]["vllm_config"]
    assert roles["decode"]["attention-config"] == '{"use_fp4_indexer_cache": true}'


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"TP": "2", "DP_SIZE": "1"}, "1 decode workers of 2 GPUs don't fill nodes of 4"),
        ({"LAUNCH_JOB": ""}, "start it with runners/launch_<cluster>.sh"),
        ({"MODEL": ""}, "set MODEL"),
    ],
)
def test_a_job_that_cannot_be(tmp_path: Path, env: dict[str, str], message: str) -> None:
    status, said = written(tmp_path, PAIR, **env)
    assert status == 2
    assert message in said
    assert not (tmp_path / "job.yaml").exists()


# rule, what is replaced and by what, part of the finding
BREAKS = [
    ("strict", "../multi_node_lib.sh", "../benchmark_lib.sh", "multi_node_lib.sh"),
    ("n-once", '  "${speculation_args[@]}"\n', "", "among the arguments, once"),
    ("reasoning-parser", "--dyn-reasoning-parser deepseek_v4", "--numa-bind", "want --dyn-reason"),
    ("options", "--numa-bind", "--numa-bnd", "no option --numa-bnd"),
    ("options", "--max-num-seqs 256", "--max-num-seqs many", "--max-num-seqs is 'many'"),
    ("address", '--served-model-name "$MODEL"', "--served-model-name x", "--served-model-name"),
    ("twin", "--block-size 256", "--block-size 64", "its base has no"),
    ("no-cache", "--no-enable-prefix-caching", "--numa-bind", "add --no-enable-prefix-caching"),
]


@pytest.mark.parametrize(("rule", "old", "new", "text"), BREAKS, ids=[b[0] for b in BREAKS])
def test_lint_looks_at_both_roles(tmp_path: Path, rule: str, old: str, new: str, text: str) -> None:
    folder = tmp_path / "benchmarks" / "multi_node"
    folder.mkdir(parents=True)
    for name in ("benchmark_lib.sh", "multi_node_lib.sh"):
        (folder.parent / name).symlink_to(ROOT / "benchmarks" / name)
    for name in (PAIR.name, PAIR.name.replace("_mtp", "")):
        shutil.copy(NODES / name, folder)
    broken = folder / PAIR.name
    assert old in broken.read_text()
    broken.write_text(broken.read_text().replace(old, new))
    found = [str(row) for row in lint.lint([broken]) if row.rule == rule]
    assert any(text in row for row in found), found


def test_a_job_without_any_answer_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotMeasured, match="Slurm has not answered 30 times"):
        wait_job.wait(Slurm("x", tmp_path), 0.0)


def test_a_command_that_does_not_answer_is_named() -> None:
    with pytest.raises(Unanswered, match="sleep did not answer within 0.1 s"):
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


class Pages:
    """A front end of which pages can be taken away."""

    def __init__(self) -> None:
        self.served: set[str] = set()
        pages = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if self.path in pages.served else 503)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def pages() -> Iterator[Pages]:
    found = Pages()
    threading.Thread(target=found.server.serve_forever, args=(0.01,), daemon=True).start()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_a_server_is_gone_after_three_misses_in_a_row(pages: Pages) -> None:
    gone = remote.watch([f"{pages.url}/v1/models", "http://127.0.0.1:1/metrics"], 0.0)
    assert [text.split(": ")[1] for text in gone] == ["503", "ConnectionError"]


def test_a_worker_without_metrics_is_waited_for_until_the_deadline(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote.ready, "wait", lambda target, timeout_s: 0.0)
    monkeypatch.setattr(remote, "POLL_S", 0.0)
    pages.served = {"/a"}
    assert remote.wait(pages.url, "m", [f"{pages.url}/a"], 5.0) < 5.0
    with pytest.raises(NotMeasured, match="no metrics within 0.1 s: .*/b: 503"):
        remote.wait(pages.url, "m", [f"{pages.url}/a", f"{pages.url}/b"], 0.1)


def test_resources_fill_whole_nodes() -> None:
    asked = settings.load(PAIR, GIVEN | {"MODEL": "m"})
    launch = srt.Launch("n", "p", "a", "i", "s", ["/a:/b"], 4, 60)
    role = srt.Role(3, 4, Command({}, ["--x"]))
    job = srt.job(asked, launch, {"prefill": role, "decode": role})
    assert job["resources"]["decode_nodes"] == 3
