"""What benches share: CPU time and peak memory of a command, and a line of the report."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Line:
    """One figure beside its peer's; limit: what ours, or ours over peer where is_ratio, must keep.

    peer: None where there is nothing to compare with. limit: None where a line is for information.
    """

    name: str
    ours: float
    peer: float | None
    unit: str
    limit: float | None = None
    is_ratio: bool = False

    @property
    def ratio(self) -> float | None:
        return self.ours / self.peer if self.peer else None

    @property
    def kept(self) -> bool:
        judged = self.ratio if self.is_ratio else self.ours
        return self.limit is None or (judged is not None and judged <= self.limit)


@dataclass(frozen=True)
class Cost:
    """CPU time, user and system, and the peak of resident memory of one process."""

    cpu_s: float
    peak_mib: float


def cost(argv: Sequence[str], cwd: Path, env: dict[str, str], status: int = 0) -> Cost:
    """Run a command to its end.

    Raises:
        RuntimeError: it ended with another status.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, cwd=cwd, env=env, stdout=output, stderr=output)
        _, ended, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(ended)
        if process.returncode != status:
            output.seek(0)
            raise RuntimeError(f"{argv}: status {process.returncode}\n{output.read().decode()}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def paired(
    ours: Sequence[str], peer: Sequence[str], cwd: Path, env: dict[str, str], times: int
) -> tuple[Cost, Cost]:
    """The least of several runs of each, taken in turn so that both meet the same machine."""
    pairs = [(cost(ours, cwd, env), cost(peer, cwd, env)) for _ in range(times + 1)][1:]
    return _least([one for one, _ in pairs]), _least([other for _, other in pairs])


def _least(costs: Sequence[Cost]) -> Cost:
    """Least CPU, but the largest peak: what counts of memory is the worst."""
    return Cost(min(cost.cpu_s for cost in costs), max(cost.peak_mib for cost in costs))


@contextmanager
def installed() -> Iterator[dict[str, str]]:
    """An environment in which compiled modules are kept, as on any machine that runs us twice."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        yield env
