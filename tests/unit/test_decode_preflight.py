"""Reserved devices before training: there, and with the memory that the engine will ask for."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import pytest

from tests.decode import points
from utils.decode_eval import lease, preflight
from utils.decode_eval.config import DecodeEvalConfig
from utils.errors import NotMeasured, UsageError

FAKES = Path(__file__).parents[1] / "fakes" / "bin"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DecodeEvalConfig:
    """Of an engine on device 1 of a machine with two."""
    monkeypatch.setenv("PATH", f"{FAKES}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_PYTHON", sys.executable)
    monkeypatch.setenv("FAKE_NVIDIA_SMI", json.dumps({"gpus": 2}))
    fields = {"output_dir": str(tmp_path), "cuda_visible_devices": "1"}
    return dataclasses.replace(points.CONFIG, **fields)


def devices(config: DecodeEvalConfig) -> str:
    return preflight.quick()["devices"](config)


@pytest.mark.parametrize("named", ["1", "GPU-1", "0,1", "MIG-9a"])
def test_devices_that_are_there(named: str, config: DecodeEvalConfig) -> None:
    found = devices(dataclasses.replace(config, cuda_visible_devices=named))
    assert found == f"{named} are there"


def test_a_device_that_is_not_there(config: DecodeEvalConfig) -> None:
    with pytest.raises(UsageError, match="no device 2; it has 0, GPU-0, 1, GPU-1"):
        devices(dataclasses.replace(config, cuda_visible_devices="0,2"))


@pytest.mark.parametrize(("free", "enough"), [(64000, True), (63999, False), ("[N/A]", True)])
def test_its_memory(
    free: int | str, enough: bool, config: DecodeEvalConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVIDIA_SMI", json.dumps({"gpus": 2, "free": free}))
    if enough:
        devices(config)
        return
    with pytest.raises(
        UsageError, match=r"device 1 has 62\.5 of 78\.1 GiB free, the engine takes 0\.8"
    ):
        devices(config)
    lease.acquire(config.folder, 0, lease.Process.of(os.getpid()), 60.0)  # that is what has it
    devices(config)


def test_a_driver_that_fails(config: DecodeEvalConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAKE_NVIDIA_SMI")
    with pytest.raises(NotMeasured, match="nvidia-smi ended with 9"):
        devices(config)
