"""SPEED-Bench's pins, and the upstream script: downloaded, checked, then run on its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import requests

from utils import records
from utils.embedded_engine import layout
from utils.errors import NotMeasured, UsageError
from utils.records import Json

# https://github.com/NVIDIA-NeMo/Skills (Apache-2.0)
SCRIPT_COMMIT = "5ac8609a56ac941540b10c92e68d556e6343cd4c"
SCRIPT_SHA256 = "a551be4df541474e54e21b480022b0cbb66c2da068fda61b2a64bd3223bbbed2"
SCRIPT_URL = (
    f"https://raw.githubusercontent.com/NVIDIA-NeMo/Skills/{SCRIPT_COMMIT}"
    "/nemo_skills/dataset/speed-bench/prepare.py"
)
# https://huggingface.co/datasets/nvidia/SPEED-Bench (NVIDIA Evaluation Dataset License)
DATASET = "nvidia/SPEED-Bench"
REVISION = "454f88454792dfa3ccfd7ef15fff248efde44cd1"
# of qualitative/test-00000-of-00001.parquet; the other configurations rest on the commit
DATA_SHA256 = {"qualitative": "4f76bc45bdffb38712a5c26d7a7c9a9a791484b392a7b64a6ffb9abe48e02e26"}
GATED = ("cais/hle",)

SCRIPT_MAX_BYTES = 1_000_000
DOWNLOAD_S = 60.0
CONNECT_S, READ_S = 10.0, 30.0
TRIES = 3
BACKOFF_S = 1.0
DRIVER = Path(__file__).with_name("speedbench_driver.py")
SUPERVISE = Path(__file__).parents[1] / "serving" / "supervise.py"
SOURCE_DIR = "SPEEDBENCH_SOURCE_DIR"
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")


@dataclass(frozen=True)
class Job:
    """Where one preparation works: `work` is new and its own, `downloads` outlives a failure."""

    directory: Path
    work: Path
    deadline: float  # time.monotonic()

    @property
    def downloads(self) -> Path:
        return self.directory / ".downloads"

    @property
    def log(self) -> Path:
        return self.directory / "prepare.log"


def source_dir() -> Path | None:
    """The folder that stands in for the network, if there is one."""
    given = os.environ.get(SOURCE_DIR)
    if given and not Path(given).is_dir():
        raise UsageError(f"{SOURCE_DIR}={given} is no folder: name one, or unset it")
    return Path(given).resolve() if given else None


def materialise(job: Job, config: str, category: str | None) -> tuple[Path, Json]:
    """Run the pinned script; its output, and what it was made from.

    Raises:
        UsageError: no access to a source, an incomplete source folder, a file that isn't pinned.
        NotMeasured: the network, the script or the time failed.
    """
    script = job.work / "prepare.py"
    script.write_bytes(_checked_script())
    argv = ["prepare", "--script", str(script), "--dataset", DATASET, "--revision", REVISION]
    argv += ["--config", config, "--cache", str(job.downloads), "--output-dir", str(job.work)]
    if sha256 := DATA_SHA256.get(config):
        argv += ["--sha256", sha256]
    if category and config == "qualitative":
        # Throughput prompts draw on one random stream in row order: there, rows are dropped later.
        argv += ["--category", category]
    if folder := source_dir():
        argv += ["--source-dir", str(folder)]
    drive(job, [*argv, "--gated", *GATED])
    facts: Json = records.read_json(job.work / "sources.json")
    facts["script"] = {"commit": SCRIPT_COMMIT, "sha256": SCRIPT_SHA256}
    return job.work / f"{config}.jsonl", facts


def _checked_script() -> bytes:
    folder = source_dir()
    where = str(folder / "prepare.py") if folder else SCRIPT_URL
    if folder:
        try:
            script = (folder / "prepare.py").read_bytes()
        except OSError as error:
            raise UsageError(f"{SOURCE_DIR}: {error}; put {SCRIPT_URL} there") from error
    else:
        script = _download(SCRIPT_URL)
    found = hashlib.sha256(script).hexdigest()
    if found != SCRIPT_SHA256:
        raise UsageError(
            f"{where}: sha256 {found} is not the pinned {SCRIPT_SHA256}; it was not run. "
            "Does a proxy or a mirror alter it?"
        )
    return script


def _download(url: str) -> bytes:
    deadline = time.monotonic() + DOWNLOAD_S
    for left in reversed(range(TRIES)):
        try:
            return _get(url, deadline)
        except requests.RequestException as error:
            answer = error.response
            lasting = answer is not None and answer.status_code in (401, 403, 404, 407)
            if lasting or not left or time.monotonic() > deadline:
                raise NotMeasured(
                    f"{url}: {type(error).__name__}: {error}. Without internet, set {SOURCE_DIR} "
                    "(see --help), or copy a prepared folder",
                    "network",
                ) from error
        time.sleep(BACKOFF_S * (TRIES - left))
    raise AssertionError


def _get(url: str, deadline: float) -> bytes:
    body = bytearray()
    with requests.get(url, stream=True, timeout=(CONNECT_S, READ_S)) as answer:
        answer.raise_for_status()
        for piece in answer.iter_content(1 << 16):
            body += piece
            if time.monotonic() > deadline:
                raise requests.Timeout(f"{len(body)} bytes in {DOWNLOAD_S:.0f} s")
            if len(body) > SCRIPT_MAX_BYTES:
                raise requests.RequestException(f"longer than {SCRIPT_MAX_BYTES} bytes")
    return bytes(body)


def drive(job: Job, arguments: list[str]) -> None:
    """Run the driver under a supervisor until it ends or time is up; log what it says."""
    driver = [str(_python()), "-I", str(DRIVER), *arguments]
    supervisor = [sys.executable, "-I", str(SUPERVISE), "--parent-pid", str(os.getpid()), "--"]
    left_s = job.deadline - time.monotonic()
    last = "it said nothing"
    with (
        job.log.open("w", encoding="utf-8") as log,
        subprocess.Popen(
            [*supervisor, *driver],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(job),
            text=True,
            errors="replace",
        ) as child,
    ):
        timer = threading.Timer(left_s, child.terminate)
        timer.start()
        try:
            assert child.stdout
            for raw in child.stdout:
                line = _without_secrets(raw.rstrip())
                print(line, file=log, flush=True)
                last = line.strip() or last
                if line.startswith(("source: ", "tokens: ")):
                    print(line, file=sys.stderr, flush=True)
            status = child.wait()
        finally:
            timer.cancel()
            child.terminate()
    if status == 0:
        return
    if last.startswith("refused: "):
        raise UsageError(last.removeprefix("refused: "))
    if time.monotonic() >= job.deadline:
        raise NotMeasured(f"not prepared within {left_s:.0f} s; see {job.log}, or --timeout-s")
    raise NotMeasured(f"the preparation ended with status {status}: {last}; see {job.log}")


def _python() -> Path:
    """`make setup`'s environment: hash-locked, and never the engine's."""
    own = layout.harness().python
    return own if own.exists() else Path(sys.executable)


def _environment(job: Job, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    folder = source_dir()
    vocabulary = folder / "tiktoken" if folder else job.directory / ".tiktoken"
    return {
        **environ,
        "HF_HUB_CACHE": str(job.downloads / "hub"),
        "HF_XET_CACHE": str(job.downloads / "xet"),
        "HF_DATASETS_CACHE": str(job.downloads),
        "TIKTOKEN_CACHE_DIR": str(vocabulary),
        "HF_HUB_DOWNLOAD_TIMEOUT": f"{READ_S:.0f}",
        "HF_HUB_ETAG_TIMEOUT": f"{READ_S:.0f}",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "PYTHONUNBUFFERED": "1",
        **({"HF_HUB_OFFLINE": "1"} if folder else {}),
    }


def _without_secrets(line: str) -> str:
    for name in SECRETS:
        if secret := os.environ.get(name):
            line = line.replace(secret, "***")
    return line
