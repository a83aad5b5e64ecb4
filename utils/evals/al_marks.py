"""When an AL workload ran: two lines that its caller writes beside the workers' logs."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from datetime import timedelta, timezone
from pathlib import Path

from utils import records
from utils.errors import NotMeasured, UsageError

# Quiet time on both sides; a log window that touches the workload then lies between the marks.
# vLLM writes a window every 10 s.
SETTLE_S = 20.0
START, END = "start", "end"

_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")


@dataclass(frozen=True)
class Marks:
    """Unix seconds of both marks. zone: of stamps in the logs that name none."""

    run_id: str
    started: float
    finished: float
    zone: timezone | None


def file_name(thinking: str, draft_length: int) -> str:
    return f"speedbench_al_marks_{thinking}_mtp{draft_length}.jsonl"


def write(path: Path, kind: str, run_id: str, offset: str | None, settle_s: float) -> None:
    """Add a mark, with the quiet time between it and the workload.

    Raises:
        UsageError: it isn't this mark's turn, or the offset isn't one.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    wanted = START if not lines else END
    if kind != wanted or len(lines) > 1:
        raise UsageError(f"{path} has {len(lines)} marks; {kind} does not follow, start a new file")
    zone_of(offset)
    if kind == END:
        time.sleep(settle_s)
    mark = {"mark": kind, "time": records.utc_now(), "run_id": run_id, "log_utc_offset": offset}
    records.write_text(path, "".join(f"{line}\n" for line in [*lines, json.dumps(mark)]))
    if kind == START:
        time.sleep(settle_s)


def read(path: Path) -> Marks:
    """Both marks.

    Raises:
        NotMeasured: one is missing or unreadable, or they don't belong together.
    """
    if not path.is_file():
        raise NotMeasured(
            f"{path} is not there: put python3 -m utils.evals.dynamo_logs mark start and mark end "
            "around the AL command",
            "no_start_mark",
        )
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        marks = [records.parse_json(line) for line in lines if line.strip()]
        found = [(m["mark"], records.parse_time(m["time"]), m["run_id"]) for m in marks]
        zone = zone_of(marks[0]["log_utc_offset"]) if marks else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, UsageError) as error:
        raise NotMeasured(f"{path}: not two marks ({error})", "unreadable_marks") from error
    kinds = [kind for kind, _, _ in found]
    for kind in (START, END):
        if kind not in kinds:
            raise NotMeasured(f"{path} has no {kind} mark", f"no_{kind}_mark")
    (_, started, run_id), (_, finished, other) = found[0], found[-1]
    if kinds != [START, END] or run_id != other or not started < finished:
        raise NotMeasured(
            f"{path}: the marks are {kinds} of runs {run_id} and {other}, want one start and then "
            "one end of the same run",
            "contradictory_marks",
        )
    return Marks(run_id, started, finished, zone)


def zone_of(offset: str | None) -> timezone | None:
    """+hh:mm → zone.

    Raises:
        UsageError: it isn't one.
    """
    if offset is None:
        return None
    match = _OFFSET.fullmatch(offset)
    if not match:
        raise UsageError(f"log-utc-offset is {offset!r}; write it as +00:00")
    sign = -1 if match[1] == "-" else 1
    return timezone(sign * timedelta(hours=int(match[2]), minutes=int(match[3])))
