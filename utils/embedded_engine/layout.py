"""Where the environments live, and what each of them is made from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# Raised when set-up itself changes what it puts into a folder.
LAYOUT_VERSION = 1
MODEL_NAME = "SmolLM2-135M-Instruct"

BOOTSTRAP_LOCK = HERE / "bootstrap.lock"
HARNESS_LOCK = HERE / "harness.lock"
ENGINE_LOCK = HERE / "engine.lock"
TORCH_CPU_LOCK = HERE / "torch-cpu.lock"
TORCH_PYPI_LOCK = HERE / "torch-pypi.lock"
SGLANG_LOCK = HERE / "sglang.lock"
SGLANG_KERNELS = HERE / "sgl_kernel"
AIPERF_LOCK = HERE / "aiperf.lock"
WEIGHTS_LOCK = HERE / "weights.lock"
WEIGHTS_SCRIPT = HERE / "weights.py"

HARNESS_SOURCES = (BOOTSTRAP_LOCK, HARNESS_LOCK)
ENGINE_SOURCES = (
    BOOTSTRAP_LOCK,
    ENGINE_LOCK,
    TORCH_CPU_LOCK,
    TORCH_PYPI_LOCK,
    WEIGHTS_LOCK,
    WEIGHTS_SCRIPT,
)
SGLANG_SOURCES = (
    BOOTSTRAP_LOCK,
    SGLANG_LOCK,
    TORCH_CPU_LOCK,
    TORCH_PYPI_LOCK,
    *sorted(SGLANG_KERNELS.glob("*.py")),
)
AIPERF_SOURCES = (BOOTSTRAP_LOCK, AIPERF_LOCK)


@dataclass(frozen=True)
class Target:
    """A folder that set-up fills, step by step."""

    name: str
    folder: Path
    venv: Path
    fingerprint: str

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def model(self) -> Path:
        return self.folder / "models" / MODEL_NAME

    @property
    def log(self) -> Path:
        return self.folder / "setup.log"


def digest(sources: tuple[Path, ...]) -> str:
    total = hashlib.sha256(str(LAYOUT_VERSION).encode())
    for source in sources:
        total.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return total.hexdigest()


def home(environ: Mapping[str, str]) -> Path:
    chosen = environ.get("SPECGATE_HOME")
    return (Path(chosen) if chosen else Path.home() / ".cache" / "specgate").absolute()


def harness(root: Path = ROOT) -> Target:
    return _target("harness", root / ".venv", root / ".venv", digest(HARNESS_SOURCES))


def engine(environ: Mapping[str, str] = os.environ) -> Target:
    return _in_home("engine", ENGINE_SOURCES, environ)


def sglang(environ: Mapping[str, str] = os.environ) -> Target:
    return _in_home("sglang", SGLANG_SOURCES, environ)


def aiperf(environ: Mapping[str, str] = os.environ) -> Target:
    return _in_home("aiperf", AIPERF_SOURCES, environ)


def _in_home(name: str, sources: tuple[Path, ...], environ: Mapping[str, str]) -> Target:
    made_from = digest(sources)
    folder = home(environ) / f"{name}-{made_from[:12]}"
    return _target(name, folder, folder / "venv", made_from)


def _target(name: str, folder: Path, venv: Path, made_from: str) -> Target:
    # A virtual environment that was copied or moved points back at its old place; with the
    # place in the fingerprint it is rebuilt instead of used.
    return Target(name, folder, venv, f"{made_from} {venv}")
