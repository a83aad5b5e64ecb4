"""What nvidia-smi says of GPUs and of the processes on them; the only place that runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from utils.errors import NotMeasured

FIELDS = (
    *("uuid", "power.draw", "memory.used", "clocks.sm", "clocks.mem", "utilization.gpu"),
    *("temperature.gpu", "clocks_throttle_reasons.active"),
)
TIMEOUT_S = 30.0
# Bits of clocks_throttle_reasons.active (nvml.h, nvmlClocksThrottleReasons); idle and the
# application's own clocks are no throttling.
THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "hardware power brake",
}


@dataclass(frozen=True)
class Sample:
    """One GPU at one time; None where the driver gives no value. Units: W, MiB, MHz, %, °C."""

    time_s: float
    uuid: str
    power_w: float | None
    memory_mib: float | None
    sm_mhz: float | None
    memory_mhz: float | None
    utilization_percent: float | None
    temperature_c: float | None
    throttle: int | None


@dataclass(frozen=True)
class Device:
    """A GPU by its number and UUID; its memory in MiB, None where the driver doesn't say."""

    index: str
    uuid: str
    free_mib: float | None
    total_mib: float | None


@dataclass(frozen=True)
class Process:
    """A process that computes on a GPU."""

    pid: int
    uuid: str
    name: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name}) on {self.uuid}"


def program() -> str | None:
    return shutil.which("nvidia-smi")


def sampling(path: str, interval_ms: int) -> list[str]:
    """The command that prints a line per GPU for ever."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    only = ["-i", chosen] if chosen else []
    return [path, *only, f"--query-gpu={','.join(FIELDS)}", _FORMAT, f"--loop-ms={interval_ms}"]


_FORMAT = "--format=csv,noheader,nounits"


def sample(line: str, time_s: float) -> Sample:
    """A line of the sampling command.

    Raises:
        ValueError: it is none.
    """
    words = [word.strip() for word in line.split(",")]
    if len(words) != len(FIELDS):
        raise ValueError(f"{line!r} has {len(words)} fields, want {len(FIELDS)}")
    numbers = [_number(word) for word in words[1:-1]]
    reasons = int(words[-1], 16) if words[-1].startswith("0x") else None
    power, memory, sm, memory_clock, utilization, temperature = numbers
    return Sample(
        time_s, words[0], power, memory, sm, memory_clock, utilization, temperature, reasons
    )


def _number(word: str) -> float | None:
    """[N/A], [Not Supported] and their like are no numbers."""
    return None if word.startswith("[") else float(word)


def throttle_names(reasons: Iterable[int]) -> list[str]:
    seen = 0
    for reason in reasons:
        seen |= reason
    return [name for bit, name in THROTTLE.items() if seen & bit]


def uuids(path: str) -> list[str]:
    """The GPUs of this machine.

    Raises:
        NotMeasured: nvidia-smi fails.
    """
    return _query(path, "--query-gpu=uuid")


def devices(path: str) -> list[Device]:
    """The GPUs of this machine with their memory.

    Raises:
        NotMeasured: nvidia-smi fails.
    """
    found = []
    for line in _query(path, "--query-gpu=index,uuid,memory.free,memory.total"):
        index, uuid, free, total = (word.strip() for word in line.split(","))
        found.append(Device(index, uuid, _number(free), _number(total)))
    return found


def processes(path: str) -> list[Process]:
    """Who computes on them, as far as this process name space shows.

    Raises:
        NotMeasured: nvidia-smi fails.
    """
    found = []
    for line in _query(path, "--query-compute-apps=pid,gpu_uuid,process_name"):
        pid, uuid, name = (word.strip() for word in line.split(",", 2))
        found.append(Process(int(pid), uuid, name))
    return found


def _query(path: str, what: str) -> list[str]:
    try:
        done = subprocess.run(
            [path, what, _FORMAT], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMeasured(f"{path} can't be asked: {error}", "no_nvidia_smi") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:200]
        raise NotMeasured(f"{path} ended with {done.returncode}: {said}", "no_nvidia_smi")
    return [line for line in done.stdout.splitlines() if line.strip()]
