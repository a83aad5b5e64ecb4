"""What measurements of a fake server share."""

from __future__ import annotations

from pathlib import Path

import pytest

from utils.acceptance import measure, meter
from utils.evals import speedbench


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speedbench.prepare_proxy(tmp_path_factory.mktemp("prompts"))


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SETTLE_DEADLINE_S", 1.0)
    monkeypatch.setattr(measure, "FLUSH_PATIENCE_S", 0.5)
    monkeypatch.setattr(meter, "SETTLE_INTERVAL_S", 0.05)
