"""All cells of one golden curve at once: more is known of the curve than of any of its cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean

from utils.golden import cell_test
from utils.golden.gate import CHECK, UNDECIDED, Judgement
from utils.golden.interval import Shift
from utils.records import Json
from utils.verdicts import Outcome, Verdict


def joint(judged: Sequence[Judgement], tolerances: Json) -> list[Verdict]:
    """Verdicts of all cells, in their order, then one on each curve that several are of.

    A cell without an interval around its shift takes no part and keeps its verdict.
    """
    verdicts = [one.verdict for one in judged]
    parts = [
        (one.golden.curve, place) for place, one in enumerate(judged) if one.shift and one.golden
    ]
    for _, group in groupby(sorted(parts), key=lambda part: part[0]):
        places = [place for _, place in group]
        shifts = [shift for place in places if (shift := judged[place].shift)]
        if len(shifts) < 2:
            continue
        *outcomes, whole = decide(shifts, tolerances)
        for place, outcome in zip(places, outcomes, strict=True):
            verdicts[place] = _with(verdicts[place], outcome, len(shifts))
        cells = [verdicts[place] for place in places]
        verdicts.append(_whole(cells, mean_shift(shifts), whole, tolerances))
    return verdicts


def decide(shifts: Sequence[Shift], tolerances: Json) -> list[Outcome]:
    """Outcomes of the cells of one curve, then the curve's own.

    They share one error rate (Holm 1979): without a shift, any of them fails wrongly no more often
    than a cell alone. A cell that is undecided within the limits passes with a curve that passes:
    what makes a drafter worse does so at every draft length.
    """
    everything = [*shifts, mean_shift(shifts)]
    significant = holm([shift.chance() for shift in everything], tolerances["error_rate"]["value"])
    alone = [cell_test.decide(shift, tolerances) for shift in everything]
    found = [
        Outcome.INCONCLUSIVE if outcome is Outcome.FAIL and not sure else outcome
        for outcome, sure in zip(alone, significant, strict=True)
    ]
    if found[-1] is not Outcome.PASS:
        return found
    undecided = Outcome.INCONCLUSIVE
    return [
        Outcome.PASS if outcome is undecided and cell_test.within(shift, tolerances) else outcome
        for outcome, shift in zip(found, everything, strict=True)
    ]


def mean_shift(shifts: Sequence[Shift]) -> Shift:
    """Mean of the cells' shifts; measured and reference are geometric means.

    Independent cells are less uncertain together. Paired ones sent the same prompts, at
    temperature 0 even to the same answers: their standard errors are averaged, as if they moved
    as one.
    """
    errors = [shift.standard_error for shift in shifts]
    known = [shift.degrees for shift in shifts if shift.degrees is not None]
    alone = all(shift.degrees is None for shift in shifts)
    return Shift(
        measured=math.exp(fmean(math.log(shift.measured) for shift in shifts)),
        reference=math.exp(fmean(math.log(shift.reference) for shift in shifts)),
        estimate=fmean(shift.estimate for shift in shifts),
        standard_error=math.hypot(*errors) / len(errors) if alone else fmean(errors),
        degrees=min(known, default=None),
        rule=f"mean over {len(shifts)} draft lengths",
    )


def holm(chances: Sequence[float], error_rate: float) -> list[bool]:
    """Which of several hypotheses are rejected, when any wrong rejection counts (Holm 1979)."""
    rejected = [False] * len(chances)
    for left, place in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        if not chances[place] <= error_rate / (len(chances) - left):
            break
        rejected[place] = True
    return rejected


def _with(verdict: Verdict, outcome: Outcome, cells: int) -> Verdict:
    """A cell's verdict after the joint decision."""
    if outcome is verdict.outcome:
        return verdict
    source = f"{verdict.source}, decided with {cells} cells of its curve"
    if outcome is Outcome.PASS:
        return replace(verdict, outcome=outcome, source=source, reason="", detail="")
    detail = (
        f"{verdict.detail}; of so many cells one may lie so far off by chance, measure it again"
    )
    return replace(verdict, outcome=outcome, source=source, reason=UNDECIDED, detail=detail)


def _whole(cells: Sequence[Verdict], mean: Shift, outcome: Outcome, tolerances: Json) -> Verdict:
    allowed = cell_test.limits(mean.reference, tolerances)
    name = cells[0].cell.split(" N=")[0]
    numbers = ",".join(one.cell.split(" N=")[1] for one in cells)
    side = "above_golden" if mean.measured > mean.reference else "below_golden"
    detail = f"{mean.measured / mean.reference - 1:+.1%} from the golden curve"
    return Verdict(
        outcome,
        f"{name} curve N={numbers}",
        CHECK,
        measured=mean.measured,
        lower=allowed.lower,
        upper=allowed.upper,
        source=f"geometric means, {allowed.rule}, {cell_test.describe(mean, tolerances)}",
        reason={Outcome.PASS: "", Outcome.FAIL: side}.get(outcome, UNDECIDED),
        detail="" if outcome is Outcome.PASS else detail,
        evidence=tuple(name for one in cells for name in one.evidence),
    )
