"""One run against another: what changed, by how much, and whether that is more than noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import stdev
from typing import Any

from utils import errors
from utils.acceptance import estimate
from utils.acceptance.estimate import CONFIDENCE
from utils.errors import UsageError
from utils.evals import proportion
from utils.golden import interval
from utils.records import Json
from utils.report import measurements

# With fewer the interval says nothing that a reader could use.
LEAST_PAIRS = 5
LEAST_RUNS = 3
UNKNOWN_NOISE = {
    "al": f"fewer than {LEAST_PAIRS} requests tell no noise",
    "score": "a number of documents is missing",
    "serving": f"fewer than {LEAST_RUNS} runs tell no noise",
}
SHOWN = 5
HEADS = ("change", "cell", "metric", "before", "after", "by", "noise", "what else differs")


class Judgement(str, Enum):
    """What a change comes to; all figures are better when larger."""

    WORSE = "worse"
    LOST = "no longer measured"
    UNKNOWN = "noise unknown"
    SAME = "within noise"
    BETTER = "better"


@dataclass(frozen=True)
class Change:
    """One cell, before and after. change: relative, or the difference itself, of a score.

    lower, upper: its 95 % interval, None where nothing tells the noise. noise: how it was found.
    differs: what ran otherwise, and may.
    """

    subject: str
    cell: str
    metric: str
    judgement: Judgement
    before: float | None
    after: float | None
    relative: bool = True
    change: float | None = None
    lower: float | None = None
    upper: float | None = None
    noise: str = ""
    differs: str = ""

    def words(self) -> str:
        """Such as "-4.1 % (-6.0 % to -2.2 %)"."""
        form = "{:+.1%}" if self.relative else "{:+.4f}"
        told = [form.format(v) for v in (self.change, self.lower, self.upper) if v is not None]
        return f"{told[0]} ({told[1]} to {told[2]})" if len(told) == 3 else "".join(told) or "—"

    def texts(self) -> tuple[str, ...]:
        """A row under HEADS."""
        before, after = ("—" if v is None else f"{v:.4f}" for v in (self.before, self.after))
        cell = f"{self.subject}: {self.cell}"
        said = (self.judgement.value, cell, self.metric, before, after, self.words())
        return (*said, self.noise, self.differs)


@dataclass(frozen=True)
class Comparison:
    """The changes, the worst first; added: cells that the baseline hasn't."""

    baseline: str
    changes: tuple[Change, ...]
    added: tuple[str, ...]

    @property
    def status(self) -> int:
        """1: something got worse than noise explains. 3: something is no longer measured."""
        found = {change.judgement for change in self.changes}
        if Judgement.WORSE in found:
            return errors.FAIL
        return errors.NOT_MEASURED if Judgement.LOST in found else errors.PASS


def compare(past: Sequence[Json], after: Json) -> Comparison:
    """A run against its baseline, the first of the past runs, cell by cell.

    The others tell the noise of what a single run says nothing about.

    Raises:
        UsageError: they share no cell, or a cell of both was measured in another way.
    """
    before = past[0]
    old = {key(point): point for point in before["points"]}
    new = {key(point): point for point in after["points"]}
    shared = [name for name in old if name in new]
    if not shared:
        raise UsageError(f"not comparable, no cell is in both: {_nearest(before, after)}")
    if odd := [line for name in shared if (line := _protocols(old[name], new[name]))]:
        more = f"; and {len(odd) - SHOWN} more cells" if len(odd) > SHOWN else ""
        raise UsageError(f"not comparable: {'; '.join(odd[:SHOWN])}{more}; measure both alike")
    changes = [
        _change(point, new.get(name), _history(past, name, point)) for name, point in old.items()
    ]
    order = list(Judgement)
    return Comparison(
        baseline=f"{before['started']} ({', '.join(before['run_ids'][:SHOWN]) or 'unnamed'})",
        changes=tuple(sorted(changes, key=lambda change: order.index(change.judgement))),
        added=tuple(_name(point) for name, point in new.items() if name not in old),
    )


def key(point: Json) -> str:
    """What two points must share to be of one cell."""
    return repr((sorted(point["subject"].items()), point["kind"], point["cell"]))


def _history(past: Sequence[Json], name: str, like: Json) -> list[float]:
    """Values of one cell, measured in one way, in all past runs."""
    return [
        point["value"]
        for run in past
        for point in run["points"]
        if key(point) == name and point["protocol"] == like["protocol"]
        if point["value"] is not None
    ]


def _nearest(before: Json, after: Json) -> str:
    """In what the two points that have most in common differ."""
    pairs = [(a, b) for a in before["points"] for b in after["points"] if a["kind"] == b["kind"]]
    if not pairs:
        return "they hold no result of one kind"
    told: list[list[str]] = [
        _differences({**a["subject"], "cell": a["cell"]}, {**b["subject"], "cell": b["cell"]})
        for a, b in pairs
    ]
    fewest = min(range(len(told)), key=lambda index: len(told[index]))
    return "; ".join(told[fewest])


def _protocols(before: Json, after: Json) -> str:
    """In what the ways of measuring differ; empty where one side has nothing to compare."""
    if before["value"] is None or after["value"] is None:
        return ""
    told = _differences(before["protocol"], after["protocol"])
    return f"{_name(after)}: {', '.join(told)}" if told else ""


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys([*before, *after])
    return [
        f"{name} was {before.get(name)}, is {after.get(name)}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def _name(point: Json) -> str:
    return f"{measurements.subject(point['subject'])}: {point['cell']}"


def _change(before: Json, after: Json | None, history: Sequence[float]) -> Change:
    subject = measurements.subject(before["subject"])
    old, new = before["value"], after["value"] if after else None
    words = {"subject": subject, "cell": before["cell"], "metric": before["metric"]}
    if old is None or after is None or new is None:
        judgement = Judgement.UNKNOWN if old is None and new is not None else Judgement.LOST
        return Change(**words, judgement=judgement, before=old, after=new)
    relative = before["kind"] != "score"
    found, noise = _interval(before, after, history)
    lower, upper = found or (None, None)
    return Change(
        **words,
        judgement=_judgement(lower, upper),
        before=old,
        after=new,
        relative=relative,
        change=new / old - 1 if relative else new - old,
        lower=lower,
        upper=upper,
        noise=noise,
        differs=", ".join(_differences(before["provenance"], after["provenance"])),
    )


def _judgement(lower: float | None, upper: float | None) -> Judgement:
    if lower is None or upper is None:
        return Judgement.UNKNOWN
    if upper < 0:
        return Judgement.WORSE
    return Judgement.BETTER if lower > 0 else Judgement.SAME


def _interval(
    before: Json, after: Json, history: Sequence[float]
) -> tuple[tuple[float, float] | None, str]:
    """Of the change, and where it is from."""
    if before["kind"] == "score" and before["samples"] and after["samples"]:
        sides = before["value"], before["samples"], after["value"], after["samples"]
        return proportion.difference(*sides), f"Newcombe, {after['samples']} documents"
    shift = None
    if before["kind"] == "al":
        shift = _shift(before, after)
    elif before["kind"] == "serving":
        shift = _spread(before, after, history)
    if shift:
        half = shift.reach(0.5 + CONFIDENCE / 2)
        ends = math.expm1(shift.estimate - half), math.expm1(shift.estimate + half)
        return ends, shift.rule
    return None, UNKNOWN_NOISE[before["kind"]]


def _shift(before: Json, after: Json) -> interval.Shift | None:
    """Of an AL: prompt by prompt where every prompt has its row, else by both standard errors."""
    old, new = before["rows"], after["rows"]
    if before["rows_are_exact"] and after["rows_are_exact"] and len(old) == len(new):
        n = int(before["protocol"]["num_speculative_tokens"])
        return interval.paired(new, [old], n, LEAST_PAIRS)
    se_old, se_new = map(estimate.clustered_standard_error, (old, new))
    if se_old is None or se_new is None or min(len(old), len(new)) < LEAST_PAIRS:
        return None
    error = math.hypot(se_old / before["value"], se_new / after["value"])
    rule = "by the standard errors of both, clustered by request"
    return _of_values(before, after, error, min(len(old), len(new)) - 1, rule)


def _spread(before: Json, after: Json, history: Sequence[float]) -> interval.Shift | None:
    """By how much past runs differ: two single runs differ by √2 of that."""
    if len(history) < LEAST_RUNS:
        return None
    error, runs = math.sqrt(2) * stdev(map(math.log, history)), len(history)
    return _of_values(before, after, error, runs - 1, f"spread of {runs} past runs")


def _of_values(before: Json, after: Json, error: float, degrees: int, rule: str) -> interval.Shift:
    new, old = after["value"], before["value"]
    return interval.Shift(new, old, math.log(new / old), error, degrees, rule)
