from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.server import Embedded, find_engine
from utils.evals import speedbench


@pytest.fixture(scope="session")
def engine() -> Embedded:
    return find_engine()


@pytest.fixture(scope="session")
def sglang() -> Embedded:
    return find_engine("sglang")


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speedbench.prepare_proxy(tmp_path_factory.mktemp("prompts"))
