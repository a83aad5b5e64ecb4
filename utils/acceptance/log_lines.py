"""Lines of an engine's log that tell of speculation, with the time that each of them covers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from utils.errors import NotMeasured

VLLM = "SpecDecoding metrics:"
SGLANG = re.compile(r"Decode batch.*\baccept len: ")
# The statistics' timer may fire late; a line never covers more than this many of its intervals.
LATE = 1.5

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ZONED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_DATED = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{3,6}))?")
_YEARLESS = re.compile(r"(?<![\d-])(\d\d-\d\d) (\d\d:\d\d:\d\d)(?!\d)")
_MEAN = re.compile(r"Mean acceptance length: (\d+\.\d+)")
_DRAFTED_PER_S = re.compile(r"Drafted throughput: (\d+\.\d+) tokens/s")
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens")
_DRAFTED = re.compile(r"Drafted: (\d+) tokens")
_POSITIONS = re.compile(r"Per-position acceptance rate: (\d\.\d+(?:, \d\.\d+)*)")


@dataclass(frozen=True)
class Line:
    """One line of vLLM's statistics.

    earliest, latest: unix seconds between which it was written, by the resolution of its stamp.
    elapsed_s: at most so long since the logger's last line. positions: of its acceptance rates,
    which is the engine's N.
    """

    earliest: float
    latest: float
    elapsed_s: float
    mean_acceptance_length: float
    accepted: int
    drafted: int
    positions: int
    text: str


@dataclass(frozen=True)
class Found:
    """What a log holds. sglang: times of SGLang's lines, which tell no steps."""

    lines: tuple[Line, ...]
    sglang: tuple[tuple[float, float], ...] = ()


def parse(name: str, text: str, near: float, zone: timezone | None) -> Found:
    """All lines of one log. near: a time that tells the year; zone: of stamps that name none.

    Raises:
        NotMeasured: a line has no readable time or lacks a number.
    """
    lines, others = [], []
    for number, raw in enumerate(text.splitlines(), 1):
        line, where = _COLOUR.sub("", raw), f"{name}:{number}"
        if VLLM in line:
            lines.append(_vllm(where, line, near, zone))
        elif SGLANG.search(line):
            others.append(_stamp(where, line.partition("Decode batch")[0], near, zone))
    return Found(tuple(lines), tuple(others))


def shortest(lines: Sequence[Line]) -> float:
    """Shortest time between lines: the statistics' interval is no longer than that."""
    return min((line.elapsed_s for line in lines), default=math.inf)


def covered_from(line: Line, interval_s: float) -> float:
    """Nothing earlier is in a line: with traffic in the interval before there was a line then."""
    return line.earliest - min(line.elapsed_s, LATE * interval_s)


def _vllm(where: str, line: str, near: float, zone: timezone | None) -> Line:
    head, _, body = line.partition(VLLM)
    earliest, latest = _stamp(where, head, near, zone)
    patterns = (_MEAN, _DRAFTED_PER_S, _ACCEPTED, _DRAFTED, _POSITIONS)
    found = [match[1] for pattern in patterns if (match := pattern.search(body))]
    if len(found) != len(patterns) or VLLM in body:
        raise NotMeasured(
            f"{where}: {body.strip()[:120]!r} is not a whole line of vLLM's speculation "
            "statistics; was the log copied while it was being written?",
            "unreadable_line",
        )
    mean, rate, accepted, drafted, positions = found
    # The rate has two decimals: what it is at least gives the longest time.
    least = float(rate) - 0.005
    return Line(
        earliest=earliest,
        latest=latest,
        elapsed_s=int(drafted) / least if least > 0 else math.inf,
        mean_acceptance_length=float(mean),
        accepted=int(accepted),
        drafted=int(drafted),
        positions=positions.count(",") + 1,
        text=line,
    )


def _stamp(where: str, head: str, near: float, zone: timezone | None) -> tuple[float, float]:
    """Earliest and latest time that a line's stamp can mean."""
    try:
        if zoned := _ZONED.search(head):
            moment = datetime.fromisoformat(_six_digits(zoned[0].replace("Z", "+00:00")))
            return _resolved(moment, "." in zoned[0])
        if dated := _DATED.search(head):
            moment = datetime.fromisoformat(f"{dated[1]} {dated[2]}")
            fraction = float(f"0.{dated[3] or 0}")
            moment = _in_zone(where, moment, zone) + timedelta(seconds=fraction)
            return _resolved(moment, dated[3] is not None)
        if yearless := _YEARLESS.search(head):
            return _resolved(min(_years(where, yearless, near, zone), key=_away(near)), False)
    except ValueError as error:
        raise NotMeasured(f"{where}: {error}", "unreadable_line") from error
    raise NotMeasured(f"{where}: the line has no time: {head.strip()[:80]!r}", "line_without_time")


def _six_digits(text: str) -> str:
    """Python 3.10 reads three or six digits of a second only."""
    return re.sub(r"\.(\d+)", lambda match: "." + match[1][:6].ljust(6, "0"), text)


def _years(
    where: str, match: re.Match[str], near: float, zone: timezone | None
) -> Iterator[datetime]:
    year = datetime.fromtimestamp(near, timezone.utc).year
    for candidate in (year - 1, year, year + 1):
        try:
            moment = datetime.fromisoformat(f"{candidate}-{match[1]} {match[2]}")
        except ValueError:
            if candidate == year + 1 and match[1] != "02-29":
                raise
            continue
        yield _in_zone(where, moment, zone)


def _away(near: float) -> Callable[[datetime], float]:
    return lambda moment: abs(moment.timestamp() - near)


def _in_zone(where: str, moment: datetime, zone: timezone | None) -> datetime:
    if zone is None:
        raise NotMeasured(
            f"{where}: its time names no zone; say the workers' with mark start --log-utc-offset",
            "unknown_time_zone",
        )
    return moment.replace(tzinfo=zone)


def _resolved(moment: datetime, exact: bool) -> tuple[float, float]:
    seconds = moment.timestamp()
    return seconds, seconds + (0.0 if exact else 1.0)
