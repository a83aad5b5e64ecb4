"""Decode workers' logs of a run: which there are, and what of them belongs to a workload."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utils import records
from utils.acceptance import log_lines
from utils.acceptance.log_lines import Found, Line
from utils.acceptance.log_windows import LogWindow, LogWindows
from utils.errors import NotMeasured
from utils.evals.al_marks import Marks

_NAME = re.compile(r"(?:^|.*_)((?:decode|agg)_w\d+)\.out")


@dataclass(frozen=True)
class Busy:
    """Unix seconds of the workload's first request and its last answer."""

    started: float
    finished: float


def read(folder: Path, marks: Marks, busy: Busy) -> LogWindows:
    """The windows of all decode workers that hold the workload and nothing else.

    Raises:
        NotMeasured: no log, a log that can't be read, no line, a worker without a line, a log
            that is there twice, or a line that holds the workload and something else.
    """
    logs = find(folder)
    found = {path: _parse(path, marks) for paths in logs.values() for path in paths}
    if not any(f.lines for f in found.values()):
        _only_sglang(folder, list(found.values()), busy)
    interval = log_lines.shortest([line for f in found.values() for line in f.lines])
    windows: list[LogWindow] = []
    idle = []
    for worker, paths in logs.items():
        mine = {path: _inside(path, found[path].lines, interval, marks, busy) for path in paths}
        _no_copies(mine)
        rows = [_window(p, worker, line, interval) for p, lines in mine.items() for line in lines]
        windows += rows
        if not rows:
            idle.append(worker)
    if not windows:
        raise NotMeasured(
            f"{folder}: no line of any decode worker lies in the workload's time", "no_lines"
        )
    if idle:
        raise NotMeasured(
            f"{folder}: {', '.join(idle)} wrote no line in the workload's time, others did: its "
            "log is incomplete, or it never got a request",
            "worker_without_lines",
        )
    started, finished = map(records.format_time, (marks.started, marks.finished))
    return LogWindows(started, finished, tuple(windows))


def find(folder: Path) -> dict[str, list[Path]]:
    """Logs by worker; nodes and restarts that share an index are all kept.

    Raises:
        NotMeasured: there is none.
    """
    logs: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.out")):
        if match := _NAME.fullmatch(path.name):
            logs.setdefault(match[1], []).append(path)
    if not logs:
        raise NotMeasured(
            f"{folder} has no log of a decode worker (*_decode_w*.out, *_agg_w*.out)", "no_logs"
        )
    return dict(sorted(logs.items()))


def _parse(path: Path, marks: Marks) -> Found:
    try:
        # A log may hold anything beside our lines; those are ASCII.
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NotMeasured(f"{path}: can't be read ({error})", "unreadable_log") from error
    return log_lines.parse(path.name, text, marks.started, marks.zone)


def _only_sglang(folder: Path, found: Sequence[Found], busy: Busy) -> None:
    times = [time for f in found for time in f.sglang]
    if any(latest > busy.started and earliest < busy.finished for earliest, latest in times):
        raise NotMeasured(
            f"{folder}: these are SGLang's logs; a line gives accept len, but not how many steps "
            "it covers, and the last steps get no line: measure at the workers' own metrics",
            "steps_unknown",
        )


def _inside(
    path: Path, lines: Sequence[Line], interval: float, marks: Marks, busy: Busy
) -> list[Line]:
    """Lines that hold something of the workload, if they hold nothing else."""
    kept = []
    for line in lines:
        begun = log_lines.covered_from(line, interval)
        if line.latest <= busy.started or begun >= busy.finished:
            continue
        if not (marks.started <= begun and line.latest <= marks.finished):
            raise NotMeasured(
                f"{path.name}: the line of {records.format_time(line.earliest)} may hold traffic "
                f"since {_time(begun)}, the workload had the server to itself from "
                f"{records.format_time(marks.started)} to {records.format_time(marks.finished)} "
                "only: put the marks further from the workload (--settle-s)",
                "straddling_window",
            )
        kept.append(line)
    return kept


def _no_copies(lines: Mapping[Path, Sequence[Line]]) -> None:
    seen: dict[tuple[str, ...], Path] = {}
    for path, mine in lines.items():
        text = tuple(line.text for line in mine)
        if text and text in seen:
            raise NotMeasured(f"{seen[text]} and {path} are the same log twice", "duplicate_log")
        seen[text] = path


def _window(path: Path, worker: str, line: Line, interval: float) -> LogWindow:
    return LogWindow(
        file=path.name,
        worker=worker,
        started=_time(log_lines.covered_from(line, interval)),
        finished=records.format_time(line.latest),
        accepted=line.accepted,
        drafted=line.drafted,
        mean_acceptance_length=line.mean_acceptance_length,
        positions=line.positions,
    )


def _time(seconds: float) -> str:
    return records.format_time(seconds) if seconds > 0 else "the start of the worker"
