"""Power, clocks, memory and strangers on the GPUs while a server is measured.

Energy is the integral of power between two marks, so loading and warm-up don't count. It is a
number only where samples lie close and on both sides of the marks; otherwise its state has a name.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from utils import records
from utils.acceptance.meter import LOCAL
from utils.errors import NotMeasured
from utils.records import Json
from utils.serving import nvidia_smi
from utils.serving.nvidia_smi import Sample
from utils.serving.supervise import descendants

INTERVAL_S = 0.5
LONGEST_GAP_S = 5 * INTERVAL_S
BRACKET_PATIENCE_S = 4 * INTERVAL_S
ABSENT = {
    "no_gpu": "there is no nvidia-smi on this machine",
    "elsewhere": "the server is on other nodes, whose GPUs can't be seen from here",
}


@dataclass
class Monitor:
    """Samples as they come, and what went wrong.

    server_pid: whose processes are no strangers. base_url: where the server is; GPUs of another
    node can't be seen from here.
    """

    server_pid: int | None = None
    base_url: str = "http://127.0.0.1"
    samples: list[Sample] = field(default_factory=list)
    others: set[str] = field(default_factory=set)
    ours: set[str] = field(default_factory=set)
    problem: str | None = None
    absent: str | None = None

    @contextmanager
    def running(self) -> Iterator[Monitor]:
        """Sample until the block ends."""
        program = nvidia_smi.program()
        if urlsplit(self.base_url).hostname not in LOCAL:
            self.absent = "elsewhere"
        elif program is None:
            self.absent = "no_gpu"
        if program is None or self.absent:
            yield self
            return
        self._look(program)
        with subprocess.Popen(
            nvidia_smi.sampling(program, round(INTERVAL_S * 1000)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            reader = threading.Thread(target=self._read, args=(process,), daemon=True)
            reader.start()
            try:
                yield self
            finally:
                if process.poll() is not None and not self.problem:
                    self.problem = f"nvidia-smi ended early, with status {process.returncode}"
                process.terminate()
                reader.join()
        self._look(program)

    def _look(self, program: str) -> None:
        """Who computes on the GPUs now."""
        try:
            found = nvidia_smi.processes(program)
        except NotMeasured as error:
            self.problem = str(error)
            return
        family = descendants(self.server_pid) | {self.server_pid} if self.server_pid else set()
        self.ours |= {process.uuid for process in found if process.pid in family}
        self.others |= {str(process) for process in found if process.pid not in family}

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            try:
                self.samples.append(nvidia_smi.sample(line, time.time()))
            except ValueError as error:
                self.problem = f"nvidia-smi says {error}"

    def bracket(self, end_s: float) -> None:
        """Wait for a sample after a mark, for a while."""
        late = time.monotonic() + BRACKET_PATIENCE_S
        while not self.absent and time.monotonic() < late:
            if self.samples and self.samples[-1].time_s >= end_s:
                return
            time.sleep(INTERVAL_S / 10)

    def report(self, begin_s: float, end_s: float, output_tokens: int) -> Json:
        """What a record says of a window; energy only where it is complete."""
        if self.absent:
            return {"state": self.absent, "reason": ABSENT[self.absent]}
        by_gpu: dict[str, list[Sample]] = {}
        for sample in self.samples:
            by_gpu.setdefault(sample.uuid, []).append(sample)
        counted = {
            uuid: rows for uuid, rows in by_gpu.items() if not self.ours or uuid in self.ours
        }
        gaps = [gap for rows in counted.values() if (gap := incomplete(rows, begin_s, end_s))]
        problem = self.problem or (gaps[0] if gaps else None) or (None if counted else "no sample")
        complete = problem is None
        joules = (
            sum(energy_j(rows, begin_s, end_s) for rows in counted.values()) if complete else None
        )
        return {
            "state": "complete" if complete else "partial",
            "reason": problem,
            "window": [records.format_time(begin_s), records.format_time(end_s)],
            "energy_j": joules,
            "energy_per_output_token_j": (
                joules / output_tokens if joules is not None and output_tokens else None
            ),
            "mean_power_w": joules / (end_s - begin_s) if joules is not None else None,
            "counted_by": "processes" if self.ours else "all GPUs",
            "gpus": [gpu(uuid, rows, begin_s, end_s) for uuid, rows in sorted(counted.items())],
            # A container that shows none of our own processes shows others' by foreign numbers.
            "strangers": sorted(self.others) if self.ours else None,
        }

    def write(self, path: Path) -> None:
        """Keep the samples, one a line."""
        head = ",".join(part.name for part in fields(Sample))
        lines = [",".join("" if v is None else str(v) for v in astuple(s)) for s in self.samples]
        records.write_text(path, "\n".join([head, *lines, ""]))


def incomplete(rows: Sequence[Sample], begin_s: float, end_s: float) -> str | None:
    """Why the power of one GPU isn't known all through the window."""
    uuid = rows[0].uuid
    if not (rows[0].time_s <= begin_s and rows[-1].time_s >= end_s):
        return f"the samples of {uuid} don't reach over the window"
    inside = _around(rows, begin_s, end_s)
    if any(sample.power_w is None for sample in inside):
        return f"{uuid} doesn't always say its power"
    longest = max(later.time_s - sooner.time_s for sooner, later in pairwise(inside))
    if not longest <= LONGEST_GAP_S:
        return f"no sample of {uuid} for {longest:.1f} s, {LONGEST_GAP_S:g} s are allowed"
    return None


def _around(rows: Sequence[Sample], begin_s: float, end_s: float) -> list[Sample]:
    """Samples in the window, and one on either side."""
    first = max(i for i, sample in enumerate(rows) if sample.time_s <= begin_s)
    last = min(i for i, sample in enumerate(rows) if sample.time_s >= end_s)
    return list(rows[first : last + 1])


def energy_j(rows: Sequence[Sample], begin_s: float, end_s: float) -> float:
    """Integral of power over the window by the trapezoidal rule, cut at its marks; joules."""
    total = 0.0
    for sooner, later in pairwise(_around(rows, begin_s, end_s)):
        assert sooner.power_w is not None and later.power_w is not None
        start, end = max(sooner.time_s, begin_s), min(later.time_s, end_s)
        slope = (later.power_w - sooner.power_w) / (later.time_s - sooner.time_s)
        at_start, at_end = (sooner.power_w + slope * (t - sooner.time_s) for t in (start, end))
        total += (at_start + at_end) / 2 * (end - start)
    return total


def gpu(uuid: str, rows: Sequence[Sample], begin_s: float, end_s: float) -> Json:
    """Extremes of one GPU inside the window; None where the driver gives no value."""
    inside = [sample for sample in rows if begin_s <= sample.time_s <= end_s]
    return {
        "uuid": uuid,
        "samples": len(inside),
        "max_power_w": _most(inside, "power_w"),
        "max_memory_mib": _most(inside, "memory_mib"),
        "max_temperature_c": _most(inside, "temperature_c"),
        "min_sm_mhz": min(_known(inside, "sm_mhz"), default=None),
        "max_sm_mhz": _most(inside, "sm_mhz"),
        "throttled_by": nvidia_smi.throttle_names(s.throttle for s in inside if s.throttle),
    }


def _most(rows: Sequence[Sample], name: str) -> float | None:
    return max(_known(rows, name), default=None)


def _known(rows: Sequence[Sample], name: str) -> list[float]:
    return [value for sample in rows if (value := getattr(sample, name)) is not None]
