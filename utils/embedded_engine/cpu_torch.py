"""Find a torch for the CPU engines: the +cpu build is a local version that PyPI doesn't carry."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from utils.embedded_engine import environments
from utils.embedded_engine.layout import TORCH_CPU_LOCK, TORCH_PYPI_LOCK
from utils.embedded_engine.steps import CommandFailed, Work, require_space
from utils.errors import UsageError

PYTORCH_INDEX = "https://download.pytorch.org/whl/cpu"
# torch from PyPI needs its CUDA libraries to be imported at all, on a machine without a GPU too.
CUDA_BUILD_GB = 8


def install(work: Work) -> str:
    """Install torch in the first way that works; its name goes into the record of the set-up."""
    for way, argv in ways(work):
        work.say(f"  torch from {way}")
        try:
            work.run(argv)
        except CommandFailed:
            continue
        return way
    raise UsageError(
        f"{work.target.name}: torch 2.13.0 could not be had from any index: see {work.target.log}; "
        f"give pip an index that carries it (PIP_EXTRA_INDEX_URL={PYTORCH_INDEX}) "
        "and run `make setup` again"
    )


def ways(work: Work) -> Iterator[tuple[str, list[str]]]:
    # The first and the last way were run to the end; the two between only up to a PyTorch index
    # that was out of reach.
    python = str(work.target.python)
    cpu = ["--require-hashes", "--no-deps", "-r", str(TORCH_CPU_LOCK)]
    yield "pip's own index", pip(python, *cpu)
    uv = shutil.which("uv")
    if uv:
        yield (
            "PyTorch's index, by uv",
            [uv, "pip", "install", "--python", python, "--torch-backend", "cpu", *cpu],
        )
    yield "PyTorch's index, by pip", pip(python, "--index-url", PYTORCH_INDEX, *cpu)
    require_space(work.target, CUDA_BUILD_GB)
    yield (
        "PyPI, the CUDA build",
        pip(python, "--require-hashes", "--no-deps", "-r", str(TORCH_PYPI_LOCK)),
    )


def pip(python: str, *arguments: str) -> list[str]:
    pip = [python, "-m", "pip", "install", "--no-input", "--progress-bar=off"]
    return [*pip, *environments.WHEELS, *arguments]
