"""Who measures now: processes told apart by start time and boot, and one lease for one eval.

Nothing here looks at the time of day, which may step; deadlines count from the machine's boot.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from utils import processes, records
from utils.errors import NotMeasured
from utils.serving import supervise

SCHEMA = "decode_eval_lease"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A worker on another machine can't be looked at: its lease counts until its deadline and this.
FOREIGN_MARGIN_S = 60.0


@dataclass(frozen=True)
class Process:
    """One process; a later one of the same id is another."""

    pid: int
    started_ticks: int
    boot_id: str
    host: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """A process that runs.

        Raises:
            NotMeasured: it has ended.
        """
        started = processes.started(pid)
        if started is None:
            raise NotMeasured(f"process {pid} has ended")
        return cls(pid, started, BOOT_ID.read_text().strip(), socket.gethostname())

    @property
    def local(self) -> bool:
        return self.host == socket.gethostname()

    def alive(self) -> bool:
        """Whether it still runs; of another machine's process nobody here can say."""
        same = self.local and self.boot_id == BOOT_ID.read_text().strip()
        return (
            same and processes.started(self.pid) == self.started_ticks and processes.alive(self.pid)
        )

    def tree(self) -> list[int]:
        """It and everything below it, while it is the same process."""
        return [*sorted(supervise.descendants(self.pid)), self.pid] if self.alive() else []

    def send(self, number: int) -> None:
        """A signal to the process alone; nothing if it has ended."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill_tree(self) -> None:
        for pid in self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Lease:
    """What lease.json says. since_boot_s: when it was taken, timeout_s: the eval's deadline.

    phase: what its worker is at.
    """

    step: int
    holder: Process
    since_boot_s: float
    timeout_s: float
    started: str
    phase: str = "start"

    def held(self) -> bool:
        """Whether its eval still runs, or may."""
        if self.holder.local:
            return self.holder.alive()
        age = time.time() - records.parse_time(self.started)
        return age < self.timeout_s + FOREIGN_MARGIN_S

    def age_s(self) -> float:
        return since_boot() - self.since_boot_s


def since_boot() -> float:
    """Seconds since boot, the same for every process of the machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def path(folder: Path) -> Path:
    return folder / "lease.json"


def read(folder: Path) -> Lease | None:
    """The lease of an eval that still runs, else None."""
    if not path(folder).exists():
        return None
    data = records.read_json(path(folder))
    if problem := records.schema_problem(data, SCHEMA):
        raise NotMeasured(f"{path(folder)}: {problem}; remove it if no eval runs")
    fields = {name: value for name, value in data.items() if name != "schema"}
    lease = Lease(**{**fields, "holder": Process(**data["holder"])})
    return lease if lease.held() else None


def acquire(folder: Path, step: int, holder: Process, timeout_s: float) -> None:
    """Take the lease for one eval; it is over when its holder has ended.

    Raises:
        NotMeasured: another eval of this folder still runs.
    """
    with _alone(folder):
        if (other := read(folder)) and other.holder != holder:
            raise NotMeasured(
                f"the eval of step {other.step} still runs (pid {other.holder.pid} on "
                f"{other.holder.host})",
                "busy",
            )
        _write(folder, Lease(step, holder, since_boot(), timeout_s, records.utc_now()))


def enter(folder: Path, holder: Process, phase: str) -> None:
    """The holder's worker says what it is at now."""
    with _alone(folder):
        if (lease := read(folder)) and lease.holder == holder:
            _write(folder, replace(lease, phase=phase))


def _write(folder: Path, lease: Lease) -> None:
    records.write_json(path(folder), {"schema": f"{SCHEMA}/1", **asdict(lease)}, SCHEMA)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def devices(names: Sequence[str]) -> Iterator[None]:
    """Hold devices against evals of other folders on this machine; the kernel lets go at death.

    Raises:
        NotMeasured: an eval of another folder holds one.
    """
    with contextlib.ExitStack() as held:
        for name in names:
            file = Path(tempfile.gettempdir()) / f"specgate-device-{name.replace('/', '-')}.lock"
            if not file.exists():
                file.touch(mode=0o666)
            handle = os.open(file, os.O_RDONLY)
            held.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise NotMeasured(
                    f"device {name} is held by another decode eval ({file})", "device_busy"
                ) from error
        yield
