"""GPU power by a fake nvidia-smi: the window alone counts, and what is missing has a name."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.shell.conftest import FAKES
from utils import records
from utils.serving import gpu_monitor, nvidia_smi
from utils.serving.gpu_monitor import Monitor
from utils.serving.nvidia_smi import Sample


def sample(time_s: float, power: float | None = 400.0, uuid: str = "GPU-0", **more: Any) -> Sample:
    figures = {
        "memory_mib": 1000.0,
        "sm_mhz": 1900.0,
        "memory_mhz": 2600.0,
        "utilization_percent": 90.0,
        "temperature_c": 60.0,
        "throttle": 0,
    }
    return Sample(time_s, uuid, power, **{**figures, **more})


def watched(*samples: Sample, **fields: Any) -> Monitor:
    return Monitor(samples=list(samples), **fields)


def test_energy_is_that_of_the_window_alone() -> None:
    """Power rises by 100 W a second; loading before and idling after must not count."""
    rows = [sample(float(t), 100.0 * t) for t in range(10)]
    assert gpu_monitor.energy_j(rows, 2.5, 4.5) == pytest.approx(350.0 * 2)
    assert gpu_monitor.energy_j(rows, 2.2, 2.6) == pytest.approx(240.0 * 0.4)


def test_a_whole_window() -> None:
    rows = [sample(t / 2, 400.0, uuid) for t in range(20) for uuid in ("GPU-0", "GPU-1")]
    found = watched(*rows).report(1.2, 6.2, 2000)
    assert (found["state"], found["reason"]) == ("complete", None)
    assert found["energy_j"] == pytest.approx(2 * 400.0 * 5)
    assert found["energy_per_output_token_j"] == pytest.approx(2.0)
    assert found["mean_power_w"] == pytest.approx(800.0)
    assert [gpu["samples"] for gpu in found["gpus"]] == [10, 10]


def test_only_our_gpus_count_where_they_are_known() -> None:
    rows = [sample(t / 2, 400.0, uuid) for t in range(20) for uuid in ("GPU-0", "GPU-1")]
    found = watched(*rows, ours={"GPU-1"}).report(1.0, 2.0, 100)
    assert (found["energy_j"], found["counted_by"]) == (pytest.approx(400.0), "processes")
    assert [gpu["uuid"] for gpu in found["gpus"]] == ["GPU-1"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([sample(t / 2) for t in range(3, 20)], "don't reach over the window"),
        ([sample(t / 2) for t in range(10)], "don't reach over the window"),
        ([sample(t / 2) for t in (*range(6), *range(12, 20))], "for 3.5 s, 2.5 s are allowed"),
        ([sample(t / 2, None if t == 6 else 400.0) for t in range(20)], "doesn't always say"),
        ([], "no sample"),
    ],
)
def test_a_window_that_is_not_covered_has_no_energy(rows: list[Sample], reason: str) -> None:
    found = watched(*rows).report(1.2, 6.2, 2000)
    assert found["state"] == "partial"
    assert reason in found["reason"]
    assert (found["energy_j"], found["energy_per_output_token_j"]) == (None, None)


def test_no_token_has_no_energy() -> None:
    rows = [sample(t / 2) for t in range(20)]
    assert watched(*rows).report(1.0, 2.0, 0)["energy_per_output_token_j"] is None


def test_clocks_and_reasons_of_the_window() -> None:
    rows = [
        sample(t / 2, sm_mhz=1900.0 - 100 * t, throttle=0x4 if t == 4 else 0x1) for t in range(9)
    ]
    (gpu,) = watched(*rows).report(1.0, 3.0, 1)["gpus"]
    assert (gpu["min_sm_mhz"], gpu["max_sm_mhz"]) == (1300.0, 1700.0)
    assert gpu["throttled_by"] == ["power cap"]


def test_what_the_driver_does_not_say_is_no_number() -> None:
    line = "GPU-0, [N/A], 1000, [Not Supported], 2600, 90, 60, 0x0000000000000024"
    found = nvidia_smi.sample(line, 1.0)
    assert (found.power_w, found.sm_mhz, found.throttle) == (None, None, 0x24)
    assert nvidia_smi.throttle_names([0x24]) == ["power cap", "software thermal"]


@pytest.mark.parametrize("line", ["", "GPU-0, 400", "GPU-0, much, 1, 1, 1, 1, 1, 0x0"])
def test_a_line_of_another_shape_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        nvidia_smi.sample(line, 1.0)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a fake nvidia-smi first on the PATH; returns how to tell it something."""
    monkeypatch.setenv("PATH", f"{FAKES / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_PYTHON", sys.executable)
    monkeypatch.setattr(gpu_monitor, "INTERVAL_S", 0.05)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def tell(**told: Any) -> None:
        monkeypatch.setenv("FAKE_NVIDIA_SMI", json.dumps(told))

    return tell


def watch(server_pid: int | None = None, seconds: float = 0.3) -> Any:
    monitor = Monitor(server_pid)
    with monitor.running():
        monitor.bracket(0.0)
        began = time.time()
        time.sleep(seconds)
        ended = time.time()
        monitor.bracket(ended)
    return monitor, monitor.report(began, ended, 100)


def test_sampling_a_fake_gpu(gpus: Any, tmp_path: Path) -> None:
    gpus(gpus=2, power=250.0, processes=[[1, 0, "somebody"]])
    monitor, found = watch()
    assert found["state"] == "complete"
    assert found["mean_power_w"] == pytest.approx(500.0)
    assert found["strangers"] is None  # ours can't be seen, so nobody knows whose this is
    monitor.write(tmp_path / "gpu.csv")
    head, *lines = (tmp_path / "gpu.csv").read_text().splitlines()
    assert head.startswith("time_s,uuid,power_w,")
    assert lines[0].split(",")[1:3] == ["GPU-0", "250.0"]
    kept = [sample(float(line.split(",")[0]), 250.0) for line in lines if "GPU-0" in line]
    again = gpu_monitor.energy_j(kept, *map(records.parse_time, found["window"]))
    assert 2 * again == pytest.approx(found["energy_j"], rel=1e-4)  # marks are in microseconds


def test_strangers_on_the_gpus_are_named(gpus: Any) -> None:
    gpus(gpus=2, processes=[[os.getpid(), 0, "ours"], [1, 1, "theirs"]])
    _, found = watch(server_pid=os.getpid())
    assert found["strangers"] == ["pid 1 (theirs) on GPU-1"]
    assert [gpu["uuid"] for gpu in found["gpus"]] == ["GPU-0"]


def test_a_monitor_that_ends_early_is_partial(gpus: Any) -> None:
    gpus(lines=2)
    _, found = watch(seconds=0.5)
    assert found["state"] == "partial"
    assert "ended early, with status 0" in found["reason"]


def test_power_that_is_not_supported_is_partial(gpus: Any) -> None:
    gpus(power="[Not Supported]")
    assert "doesn't always say its power" in watch()[1]["reason"]


def test_a_driver_that_does_not_answer_is_partial(gpus: Any) -> None:
    _, found = watch()  # told nothing, it is a driver that is broken
    assert found["state"] == "partial"
    assert "NVIDIA-SMI has failed" in found["reason"]


def test_no_nvidia_smi_is_no_gpu_and_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    _, found = watch()
    assert found == {"state": "no_gpu", "reason": "there is no nvidia-smi on this machine"}


def test_gpus_of_other_nodes_are_not_these(gpus: Any) -> None:
    gpus(gpus=2)
    monitor = Monitor(base_url="http://frontend:8000")
    with monitor.running():
        monitor.bracket(0.0)
    found = monitor.report(1.0, 2.0, 100)
    assert (found["state"], monitor.samples) == ("elsewhere", [])


def test_only_the_visible_gpus_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert nvidia_smi.sampling("nvidia-smi", 500)[1:3] == ["-i", "2,3"]


def test_every_state_fits_the_record(gpus: Any) -> None:
    schema = records.read_json(records.SCHEMAS / "serving.json")["properties"]["gpu"]
    gpus(gpus=1)
    _, found = watch()
    assert found.keys() == schema["properties"].keys()
