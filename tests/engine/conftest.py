from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.launched import Finished, finish
from tests.engine.server import Embedded, find_engine
from utils.evals import speedbench


@pytest.fixture(scope="session", autouse=True)
def unbound() -> Iterator[None]:
    """One thread an engine, on whatever core is free: vLLM would pin all engines to the same.

    Two threads of one engine wait for each other, spinning, while others have the cores.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("NUMBA_NUM_THREADS", "1")  # numba would set OpenMP's
        yield


@pytest.fixture(scope="session")
def engine() -> Embedded:
    return find_engine()


@pytest.fixture(scope="session")
def sglang() -> Embedded:
    return find_engine("sglang")


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speedbench.prepare_proxy(tmp_path_factory.mktemp("prompts"))


@pytest.fixture(scope="session")
def base(prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The CPU recipe, run to its verdict: serving, greedy outputs, an eval."""
    return finish("smollm2_bf16_cpu_vllm", tmp_path_factory.mktemp("base"), prompts)


@pytest.fixture(scope="session")
def twin(prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Its twin that speculates by n-grams, with the AL eval too."""
    return finish("smollm2_bf16_cpu_vllm_mtp", tmp_path_factory.mktemp("twin"), prompts)
