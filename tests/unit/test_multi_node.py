"""Disaggregated recipes: their job for srt-slurm, the rules, a server on other nodes."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import run_files
from utils import records
from utils.errors import NotMeasured, UsageError
from utils.evals import al_marks, dynamo_logs
from utils.recipes import lint, settings
from utils.runners import srt
from utils.serving import remote
from utils.serving.launch import Command

ROOT = Path(__file__).resolve().parents[2]
NODES = ROOT / "benchmarks" / "multi_node"
PAIR = NODES / "dsv4_fp4_gb200_dynamo-vllm_mtp.sh"
GIVEN = {"MODEL_PATH": "/m", "TP": "1", "CONC": "4", "ISL": "8", "OSL": "8", "MAX_MODEL_LEN": "64"}


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
    for name in ("harness.sh", "benchmark_lib.sh", "multi_node_lib.sh"):
        (folder.parent / name).symlink_to(ROOT / "benchmarks" / name)
    for name in (PAIR.name, PAIR.name.replace("_mtp", "")):
        shutil.copy(NODES / name, folder)
    broken = folder / PAIR.name
    assert old in broken.read_text()
    broken.write_text(broken.read_text().replace(old, new))
    found = [str(row) for row in lint.lint([broken]) if row.rule == rule]
    assert any(text in row for row in found), found


def test_a_mark_takes_the_run_from_its_plan(tmp_path: Path) -> None:
    records.write_json(tmp_path / "plan.json", run_files.plan(run_id="r1"))
    words = ["--thinking", "on", "--num-spec-tokens", "2", "--settle-s", "0"]
    plan = ["--plan", str(tmp_path / "plan.json")]
    for kind in ("start", "end"):
        assert dynamo_logs.main(["mark", kind, str(tmp_path), *words, *plan]) == 0
    marks = al_marks.read(tmp_path / al_marks.file_name("on", 2))
    assert marks.run_id == "r1"


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
    with pytest.raises(NotMeasured, match=r"no metrics within 0\.1 s: .*/b: 503"):
        remote.wait(pages.url, "m", [f"{pages.url}/a", f"{pages.url}/b"], 0.1)


def test_resources_fill_whole_nodes() -> None:
    asked = settings.load(PAIR, GIVEN | {"MODEL": "m"})
    launch = srt.Launch("n", "p", "a", "i", "s", ["/a:/b"], 4, 60)
    role = srt.Role(3, 4, Command({}, ["--x"]))
    job = srt.job(asked, launch, {"prefill": role, "decode": role})
    assert job["resources"]["decode_nodes"] == 3
