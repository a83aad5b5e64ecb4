"""A snapshot behind a server: its arguments, its environment, its start and its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from utils import processes
from utils.decode_eval.config import CPU, DecodeEvalConfig
from utils.decode_eval.converters import Draft, convert
from utils.errors import NotMeasured, UsageError
from utils.recipes import speculation
from utils.serving import launch, ready, supervise
from utils.serving.launch import Command

BOOTS = 3
# Of the training job and its launcher; an engine that sees them tries to join the job.
_SCRUBBED = {
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
    *("OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
    *("SYNTHETIC_ACCEPTANCE", "CUDA_VISIBLE_DEVICES"),
}
_SCRUBBED_PREFIXES = (
    *("TORCHELASTIC_", "PET_", "TORCH_NCCL_", "NCCL_", "SLURM_", "PMI_", "PMIX_", "OMPI_"),
    *("ACCELERATE_", "FSDP_", "DEEPSPEED_", "WANDB_"),
)


@dataclass(frozen=True)
class Server:
    """A server that generates. pid: its supervisor's, None for one that somebody else started."""

    base_url: str
    pid: int | None
    log: Path | None
    boot_s: float
    status_file: Path | None = None

    def ended(self) -> str | None:
        """The exit status of an engine that has ended by itself."""
        file = self.status_file
        return file.read_text().strip() if file and file.exists() else None


def scrubbed(environ: Mapping[str, str], config: DecodeEvalConfig) -> dict[str, str]:
    """An environment without what belongs to the training job, and with its devices pinned."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _SCRUBBED
        and not name.startswith(_SCRUBBED_PREFIXES)
        and not name.lower().endswith("_proxy")
    }
    if config.cuda_visible_devices is not None:
        kept["CUDA_VISIBLE_DEVICES"] = ",".join(config.devices)
    return kept


def prepared(config: DecodeEvalConfig, snapshot_dir: Path, out_dir: Path) -> Draft:
    """A snapshot as the engine loads it, in out_dir; a command of the user's takes it as it is.

    Raises:
        UsageError: the engine can't load a draft of this kind.
    """
    if config.command:
        return Draft(config.method or "", snapshot_dir, {})
    return convert(snapshot_dir, config.target_model, config.engine, out_dir)


def serving_args(config: DecodeEvalConfig, draft: Draft | None, port: int) -> list[str]:
    """The engine's whole command line; without a draft it serves the target alone.

    Raises:
        UsageError: the draft's method or keys are none that the engine takes.
    """
    if config.command:
        words = {
            "{target}": config.target_model,
            "{draft}": str(draft.path) if draft else "",
            "{port}": str(port),
            "{n}": str(config.num_speculative_tokens),
            "{name}": config.target_model,
        }
        return [_filled(word, words) for word in config.command]
    own = _sglang(config, port) if config.engine == "sglang" else _vllm(config, port)
    return [*own, *speculation_args(config, draft), *config.engine_args]


def speculation_args(config: DecodeEvalConfig, draft: Draft | None) -> list[str]:
    """The part of the command line that a recipe's `speculate` makes."""
    if draft is None:
        return []
    keys = {"draft_model": str(draft.path), **draft.speculation}
    if config.engine == "vllm" and config.tensor_parallel_size > 1:
        keys.setdefault("draft_tensor_parallel_size", "1")
    pairs = [f"{name}={value}" for name, value in keys.items()]
    n = str(config.num_speculative_tokens)
    return speculation.parse(config.engine, draft.method, n, pairs).arguments()


def _filled(word: str, words: Mapping[str, str]) -> str:
    for name, value in words.items():
        word = word.replace(name, value)
    return word


def _vllm(config: DecodeEvalConfig, port: int) -> list[str]:
    words = [
        *("vllm", "serve", config.target_model, "--served-model-name", config.target_model),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", config.dtype),
        *("--tensor-parallel-size", str(config.tensor_parallel_size)),
        "--no-enable-prefix-caching",
    ]
    if config.cuda_visible_devices != CPU:
        words += ["--gpu-memory-utilization", str(config.gpu_memory_utilization)]
    if config.max_model_len:
        words += ["--max-model-len", str(config.max_model_len)]
    return [*words, *(["--trust-remote-code"] if config.trust_remote_code else [])]


def _sglang(config: DecodeEvalConfig, port: int) -> list[str]:
    words = [
        *(config.engine_python or "python3", "-m", "sglang.launch_server"),
        *("--model-path", config.target_model, "--served-model-name", config.target_model),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", config.dtype),
        *("--tp-size", str(config.tensor_parallel_size), "--enable-metrics"),
        "--disable-radix-cache",
    ]
    if config.cuda_visible_devices == CPU:
        words += ["--device", "cpu"]
    else:
        words += ["--mem-fraction-static", str(config.gpu_memory_utilization)]
    if config.max_model_len:
        words += ["--context-length", str(config.max_model_len)]
    return [*words, *(["--trust-remote-code"] if config.trust_remote_code else [])]


@contextlib.contextmanager
def serve(
    config: DecodeEvalConfig, draft: Draft | None, folder: Path, timeout_s: float
) -> Iterator[Server]:
    """Start the engine, wait until it generates, stop its whole tree whatever happens.

    Its log is folder/engine.log. On a free port that somebody takes first it starts again.

    Raises:
        NotMeasured: it wasn't ready within timeout_s, or ended.
        UsageError: the engine isn't there, or its port is taken.
    """
    if config.base_url:
        yield Server(config.base_url, None, None, 0.0)
        return
    began = time.monotonic()
    for boot in range(1, BOOTS + 1):
        left = timeout_s - (time.monotonic() - began)
        with _reserved(config.port) as port, _engine(config, draft, folder, port) as pid:
            url = f"http://127.0.0.1:{port}"
            try:
                endpoint = config.sources[0].endpoint
                ready.wait(ready.Target(url, config.target_model, endpoint, pid), left)
            except NotMeasured:
                if config.port == 0 and boot < BOOTS and _stolen(port, pid):
                    print(f"port {port} was taken by somebody else; starting again", flush=True)
                    continue
                raise
            boot_s = time.monotonic() - began
            yield Server(url, pid, folder / "engine.log", boot_s, folder / "engine.status")
            return


@contextlib.contextmanager
def _reserved(port: int) -> Iterator[int]:
    """A port held until the engine is done: bound but not listening, with the address reusable.

    The engine, which sets SO_REUSEADDR as servers do, can bind beside it; nobody is given the port
    who asks the kernel for a free one.
    """
    if port:
        launch.check_port(port)
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        yield int(holder.getsockname()[1])


@contextlib.contextmanager
def _engine(
    config: DecodeEvalConfig, draft: Draft | None, folder: Path, port: int
) -> Iterator[int]:
    """The engine below a supervisor of its own, which ends with us; yields the supervisor's pid."""
    environ = scrubbed(os.environ, config)
    if config.engine_python:
        environ["ENGINE_PYTHON"] = config.engine_python
    command = Command(config.engine_env, serving_args(config, draft, port))
    changed, unset = launch.engine_environment(environ, command)
    environ = {k: v for k, v in environ.items() if k not in unset} | changed
    if not shutil.which(command.argv[0], path=environ["PATH"]):
        raise UsageError(
            f"{command.argv[0]} is not on the engine's PATH; set engine_python to the Python that "
            "has the engine"
        )
    words = supervise.command_line(
        command.argv,
        log=folder / "engine.log",
        grace_s=config.stop_grace_s,
        status_file=folder / "engine.status",
    )
    (folder / "engine.status").unlink(missing_ok=True)
    supervisor = subprocess.Popen(words, env=environ, cwd=folder, stdin=subprocess.DEVNULL)
    try:
        yield supervisor.pid
    finally:
        supervisor.terminate()
        supervisor.wait(config.stop_grace_s + supervise.KILL_WAIT_S + 5.0)


def _stolen(port: int, pid: int) -> bool:
    family = supervise.descendants(pid) | {pid}
    return any(not family.intersection(found.pids) for found in processes.listeners(port))
