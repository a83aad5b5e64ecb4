"""What is wrong with a node is said before a GPU is held, each with its remedy."""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from tests.shell.conftest import FAKES
from utils.evals import speedbench
from utils.recipes import __main__ as recipes
from utils.recipes import doctor, model_folder, settings
from utils.recipes.doctor import OK, PROBLEM, UNKNOWN, Finding

ROOT = settings.ROOT / "benchmarks/single_node"
CPU, GPU = ROOT / "smollm2_bf16_cpu_vllm_mtp.sh", ROOT / "dsv4_fp4_b300_vllm_mtp.sh"
DIGEST = "vllm/vllm-openai@sha256:" + "0" * 64


def write_shard(path: Path, names: list[str], size: int = 8) -> None:
    """A safetensors file whose tensors hold `size` bytes each."""
    offsets = {
        name: {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate(names)
    }
    header = json.dumps({"__metadata__": {"format": "pt"}, **offsets}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size * len(names)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model in two shards."""
    found = tmp_path / "model"
    found.mkdir()
    (found / "config.json").write_text("{}")
    (found / "tokenizer.json").write_text("{}")
    files = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    write_shard(found / files[0], ["a", "b"])
    write_shard(found / files[1], ["c"])
    index = {"weight_map": {"a": files[0], "b": files[0], "c": files[1]}}
    (found / model_folder.INDEX).write_text(json.dumps(index))
    return found


def test_a_whole_folder_has_no_problem(folder: Path) -> None:
    assert list(model_folder.problems(folder)) == []


FIRST, SECOND = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / SECOND).unlink(), "is in the index and not there"),
        (lambda f: (f / SECOND).write_bytes((f / SECOND).read_bytes()[:-1]), "its header wants"),
        (lambda f: (f / SECOND).write_bytes(b"\0" * 4), "has no sound header"),
        (lambda f: (f / SECOND).write_bytes(b"\xff" * 64), "a header of"),
        (lambda f: write_shard(f / SECOND, ["d"]), "lacks 1 tensors of the index, first c"),
        (lambda f: (f / model_folder.INDEX).unlink(), "index.json is missing beside"),
        (lambda f: (f / model_folder.INDEX).write_text("{}"), "index.json can't be used"),
        (lambda f: (f / "config.json").unlink(), "config.json: can't be read"),
        (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer"),
        (lambda f: (f / "x.incomplete").touch(), "a download was cut off"),
    ],
)
def test_a_folder_that_is_not_whole(folder: Path, change: Any, message: str) -> None:
    change(folder)
    (problem,) = model_folder.problems(folder)
    assert message in problem and "download the model again" in problem


def test_a_folder_without_weights(tmp_path: Path) -> None:
    assert any("holds no safetensors" in text for text in model_folder.problems(tmp_path))


@pytest.fixture
def node(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Findings of one check on a node with eight free GPUs, changed by environment variables."""
    prompts = speedbench.prepare_proxy(tmp_path / "prompts").parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    environment = {
        "PATH": f"{FAKES / 'bin'}:{os.environ['PATH']}",
        "FAKE_PYTHON": sys.executable,
        "FAKE_NVIDIA_SMI": json.dumps({"gpus": 8}),
        **{"MODEL": "m", "MODEL_PATH": str(folder), "TP": "8", "CONC": "1 32", "ISL": "8"},
        **{"OSL": "8", "MAX_MODEL_LEN": "64", "PORT": str(free), "RESULT_DIR": str(tmp_path / "r")},
        **{"SPEEDBENCH_DIR": str(prompts), "IMAGE": DIGEST, "HF_HOME": str(tmp_path)},
    }

    def look(check: str, recipe: Path = GPU, **change: str) -> list[Finding]:
        for name in doctor.TOKENS:
            monkeypatch.delenv(name, raising=False)
        for name, value in {**environment, **change}.items():
            monkeypatch.setenv(name, value)
        found = doctor.examine(settings.load(recipe, os.environ))
        return [finding for finding in found if finding.check == check]

    return look


def states(findings: list[Finding]) -> list[str]:
    return [finding.state for finding in findings]


def test_a_fit_node(node: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert states(node("gpu")) == [OK]
    status = recipes.main(["doctor", str(CPU)])
    lines = capsys.readouterr().out.splitlines()
    assert status == 0, lines
    assert [line.split()[1] for line in lines] == [
        *("port", "ulimit", "disk", "memory", "/dev/shm", "model", "data"),
    ]


def test_a_port_in_use(node: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        (found,) = node("port", PORT=str(other.getsockname()[1]))
    assert found.state == PROBLEM
    assert f"pid {os.getpid()}" in found.text


def test_open_files_against_the_highest_concurrency(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2048, 2048))
    assert states(node("ulimit", CONC="1 1024")) == [OK]
    (found,) = node("ulimit", CONC="1 1025")
    assert found.state == PROBLEM and "2049 are needed for 1025" in found.text
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, -1))
    assert states(node("ulimit", CONC="4096")) == [OK]


def test_a_full_disk(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage(1 << 30))
    (found,) = node("disk")
    assert found.state == PROBLEM and "1.0 GiB, 2.0 are needed" in found.text


def test_too_little_memory(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_available", lambda: 1 << 30)
    assert states(node("memory")) == [PROBLEM]
    monkeypatch.setattr(doctor, "_available", lambda: None)
    assert states(node("memory")) == [UNKNOWN]


def test_each_rank_loads_one_file(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "sizes", lambda _: [2 << 30, 1 << 30])
    monkeypatch.setattr(doctor, "_available", lambda: 20 << 30)
    assert states(node("memory")) == [OK]  # 8 x 2 + 4
    monkeypatch.setattr(doctor, "_available", lambda: (20 << 30) - 1)
    assert states(node("memory")) == [PROBLEM]


def test_little_shared_memory_matters_to_several_ranks(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage(64 << 20))
    (found,) = node("/dev/shm")
    assert found.state == PROBLEM and "--ipc=host" in found.text
    assert node("/dev/shm", TP="1") == []


@pytest.mark.parametrize(
    ("told", "env", "expected", "text"),
    [
        ({"gpus": 4}, {}, [PROBLEM], "4 GPUs, the topology takes 8"),
        ({"gpus": 8}, {"TP": "4", "DP_SIZE": "4"}, [PROBLEM], "takes 16"),
        ({"gpus": 8}, {"DP_SIZE": "8", "DP_ATTENTION": "true"}, [OK], "takes 8"),
        ({"gpus": 8, "processes": [[77, 3, "python"]]}, {}, [OK, PROBLEM], "pid 77 (python)"),
        (None, {}, [UNKNOWN], "mend the driver"),
    ],
)
def test_gpus(
    node: Any,
    monkeypatch: pytest.MonkeyPatch,
    told: Any,
    env: dict[str, str],
    expected: list[str],
    text: str,
) -> None:
    if told is not None:
        env["FAKE_NVIDIA_SMI"] = json.dumps(told)
        found = node("gpu", **env)
    else:
        monkeypatch.setattr(doctor.nvidia_smi, "program", lambda: "/bin/false")
        found = node("gpu")
    assert states(found) == expected
    assert text in found[-1].text


def test_without_nvidia_smi_nobody_knows(node: Any) -> None:
    assert states(node("gpu", PATH="/nowhere")) == [UNKNOWN]


@pytest.mark.parametrize(
    ("image", "state"), [(DIGEST, OK), ("vllm/vllm-openai:v0.32.0", PROBLEM), ("", UNKNOWN)]
)
def test_image(node: Any, image: str, state: str) -> None:
    assert states(node("image", IMAGE=image)) == [state]


def test_a_cpu_recipe_needs_neither_gpu_nor_image(node: Any) -> None:
    env = {"PATH": "/nowhere", "IMAGE": "", "TP": "1"}
    assert node("gpu", CPU, **env) == node("image", CPU, **env) == []


def test_a_model_that_must_be_downloaded(node: Any, tmp_path: Path) -> None:
    (found,) = node("model", MODEL_PATH="org/model")
    assert found.state == UNKNOWN and "there is no token, set HF_TOKEN" in found.text
    (found,) = node("model", MODEL_PATH="org/model", HF_TOKEN="secret")
    assert found.state == UNKNOWN and "there is a token" in found.text
    assert "secret" not in found.text
    (found,) = node("model", MODEL_PATH="/no/such")
    assert found.state == PROBLEM and "isn't there" in found.text
    (found,) = node("model", MODEL_PATH="org/model", HF_HUB_OFFLINE="1")
    assert found.state == PROBLEM and "HF_HUB_OFFLINE forbids" in found.text
    (tmp_path / "token").write_text("secret")
    assert "there is a token" in node("model", MODEL_PATH="org/model", HF_HUB_OFFLINE="0")[0].text


def test_a_broken_model_is_named(node: Any, folder: Path) -> None:
    (folder / SECOND).unlink()
    (found,) = node("model")
    assert found.state == PROBLEM and SECOND in found.text


def test_prompts_that_are_not_there(node: Any, tmp_path: Path) -> None:
    assert states(node("data set", CPU)) == [OK]
    (found,) = node("data set")
    assert found.state == PROBLEM and "qualitative-coding.jsonl: can't be read" in found.text
    assert "there is no token" in found.text
    (found,) = node("data set", CPU, SPEEDBENCH_DIR=str(tmp_path / "none"))
    assert found.state == PROBLEM and "prepare" in found.text and "token" not in found.text


def test_the_worst_finding_decides(node: Any, capsys: pytest.CaptureFixture[str]) -> None:
    node("gpu", IMAGE="vllm:latest", MODEL_PATH="org/model", HF_TOKEN="x", PATH="/nowhere")
    assert recipes.main(["doctor", str(GPU)]) == 2
    node("gpu", CPU, MODEL_PATH="org/model", HF_TOKEN="x")
    assert recipes.main(["doctor", str(CPU)]) == 3
    assert recipes.main(["doctor", "--lenient", str(CPU)]) == 0
    assert "unknown  model" in capsys.readouterr().out
