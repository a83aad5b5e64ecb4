"""What can be known before training starts: the engine, its devices, the disk, the prompts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from utils.decode_eval import history, lease, prompts, serving
from utils.decode_eval.config import DecodeEvalConfig
from utils.errors import HarnessError, NotMeasured, UsageError
from utils.serving import launch, nvidia_smi
from utils.serving.nvidia_smi import Device

MIN_FREE_BYTES = 1 << 30
PROBE_TIMEOUT_S = 20.0
WORKER_IMPORTS = ("aiohttp", "jsonschema", "prometheus_client", "requests", "yaml")
VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
Check = Callable[[DecodeEvalConfig], str]


def quick() -> dict[str, Check]:
    """Checks that cost milliseconds: each says what is in order, or raises HarnessError."""
    return {
        "output_dir": _output_dir,
        "worker": _worker,
        "engine": _engine,
        "devices": _devices,
        "lease": _lease,
    }


def thorough() -> dict[str, Check]:
    """All of them, as doctor runs them."""
    return {**quick(), "engine_version": _version, "prompts": _prompts, "history": _history}


def enforce(config: DecodeEvalConfig) -> Iterator[str]:
    """The problems found by the quick checks.

    Raises:
        UsageError: there is one, and preflight is strict.
    """
    for name, check in quick().items():
        try:
            check(config)
        except HarnessError as error:
            if config.preflight == "strict":
                raise UsageError(f"decode_eval preflight, {name}: {error}") from error
            yield f"{name}: {error}"


def _output_dir(config: DecodeEvalConfig) -> str:
    try:
        config.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=config.folder):
            free = shutil.disk_usage(config.folder).free
    except OSError as error:
        raise UsageError(f"{config.folder} can't be written: {error.strerror}") from error
    if free < MIN_FREE_BYTES:
        raise UsageError(
            f"{config.folder} has {free / 1e9:.1f} GB left, less than {MIN_FREE_BYTES / 1e9:.1f}"
        )
    return f"{config.folder} can be written, {free / 1e9:.0f} GB are free"


def _worker(_: DecodeEvalConfig) -> str:
    """The worker runs in training's own Python."""
    if absent := [name for name in WORKER_IMPORTS if importlib.util.find_spec(name) is None]:
        raise UsageError(
            f"{sys.executable} lacks {', '.join(absent)}, which the worker needs: pip install them"
        )
    return f"{sys.executable} has what the worker needs"


def _engine(config: DecodeEvalConfig) -> str:
    if config.base_url:
        return f"{config.base_url} is not ours to start"
    program = serving.serving_args(config, None, 1)[0]
    environ = serving.scrubbed(os.environ, config)
    if config.engine_python:
        environ["ENGINE_PYTHON"] = config.engine_python
    changed, _ = launch.engine_environment(environ, launch.Command(config.engine_env, [program]))
    found = shutil.which(program, path=changed["PATH"])
    if not found:
        raise UsageError(
            f"{program} is not on the engine's PATH; set engine_python to the Python that has it"
        )
    return f"{program} is {found}"


def _devices(config: DecodeEvalConfig) -> str:
    """They are there, and have the memory that the engine will ask for."""
    named = ",".join(config.devices)
    if not named:
        return "no device is reserved"
    program = nvidia_smi.program()
    if not program:
        return f"{named}; not looked at, there is no nvidia-smi"
    known = {name: one for one in nvidia_smi.devices(program) for name in (one.index, one.uuid)}
    whole = [name for name in config.devices if not name.startswith("MIG-")]  # not listed
    if absent := [name for name in whole if name not in known]:
        raise UsageError(
            f"this machine has no device {','.join(absent)}; it has {', '.join(known)}"
        )
    # A command asks for what it likes; an earlier eval of this run may still have its memory.
    if not (config.command or lease.read(config.folder)):
        for name in whole:
            _require_memory(known[name], config.gpu_memory_utilization)
    return f"{named} are there"


def _require_memory(device: Device, share: float) -> None:
    free, total = device.free_mib, device.total_mib
    if free is not None and total is not None and free < share * total:
        raise UsageError(
            f"device {device.index} has {free / 1024:.1f} of {total / 1024:.1f} GiB free, the "
            f"engine takes {share:g} of them (gpu_memory_utilization): free it or name another one"
        )


def _lease(config: DecodeEvalConfig) -> str:
    if held := lease.read(config.folder):
        return f"step {held.step} is being measured by pid {held.holder.pid}; it will be adopted"
    return "no eval runs"


def _version(config: DecodeEvalConfig) -> str:
    if config.command or config.base_url:
        return "a server of your own is not asked"
    python = config.engine_python or shutil.which("python3") or "python3"
    words = [python, "-c", VERSION, config.engine]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise UsageError(f"{python} has no {config.engine}: {done.stderr.strip()[-200:]}")
    return f"{config.engine} {done.stdout.strip()} in {python}"


def _prompts(config: DecodeEvalConfig) -> str:
    frozen = prompts.freeze(config)
    return ", ".join(f"{name}: {len(one.prompts)} prompts" for name, one in frozen.items())


def _history(config: DecodeEvalConfig) -> str:
    rows = history.read(config.folder / history.FILE)
    return f"{len(rows)} lines, {len(history.measured(rows))} steps measured"


def convertible(config: DecodeEvalConfig, checkpoint: Path) -> str:
    """Make a snapshot servable in a folder that is thrown away.

    Raises:
        UsageError: no engine would load it; NotMeasured: it isn't there.
    """
    if not checkpoint.exists():
        raise NotMeasured(f"{checkpoint} is not there")
    if config.command or config.base_url:
        return "served as it is"
    with tempfile.TemporaryDirectory(dir=config.folder) as folder:
        draft = serving.prepared(config, checkpoint, Path(folder) / "served")
        return f"{draft.method}: {' '.join(serving.speculation_args(config, draft))}"
