"""One cell's decision: pass, fail or inconclusive, from a shift and the tolerances."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from utils.evals.al_record import Figures
from utils.golden import interval
from utils.golden.interval import Shift
from utils.golden.registry import Golden
from utils.records import Json
from utils.verdicts import Outcome


@dataclass(frozen=True)
class Limits:
    """Inclusive limits of an AL, and the rule that set them."""

    lower: float
    upper: float
    rule: str


def limits(reference: float, tolerances: Json) -> Limits:
    """What lies so near to the reference is no shift that matters."""
    share = tolerances["relative_floor"]["value"]
    return Limits(reference * (1 - share), reference * (1 + share), f"±{share:.0%}")


def within(shift: Shift, tolerances: Json) -> bool:
    """Whether the AL itself lies within the limits."""
    allowed = limits(shift.reference, tolerances)
    return allowed.lower <= shift.measured <= allowed.upper


@dataclass(frozen=True)
class Span:
    """The interval that decides, as log ratios."""

    confidence: float
    low: float
    high: float

    def __str__(self) -> str:
        low, high = math.expm1(self.low), math.expm1(self.high)
        return f"{100 * self.confidence:.4g}% interval {low:+.1%}..{high:+.1%}"


def span(shift: Shift, tolerances: Json, error_rate: float | None = None) -> Span:
    """Of a pass only one end can be wrong, a fail can be on either side.

    error_rate: of each of the two errors, by default that of the tolerances.
    """
    rate = tolerances["error_rate"]["value"] if error_rate is None else error_rate
    tail = rate if within(shift, tolerances) else rate / 2
    half = shift.reach(1 - tail)
    return Span(1 - 2 * tail, shift.estimate - half, shift.estimate + half)


def decide(shift: Shift, tolerances: Json, error_rate: float | None = None) -> Outcome:
    """Pass: the AL lies within the limits, and its interval excludes a shift that must not pass.
    Fail: it lies outside, and the interval excludes that there is no shift. Else inconclusive.
    """
    found = span(shift, tolerances, error_rate)
    if within(shift, tolerances):
        worst = -math.log1p(-tolerances["must_not_pass"]["value"])
        sure = -worst <= found.low and found.high <= worst
        return Outcome.PASS if sure else Outcome.INCONCLUSIVE
    sure = found.low > 0 if shift.measured > shift.reference else found.high < 0
    return Outcome.FAIL if sure else Outcome.INCONCLUSIVE


def describe(shift: Shift, tolerances: Json, error_rate: float | None = None) -> str:
    """The shift, the interval that decides, and where its width is from."""
    estimate = math.expm1(shift.estimate)
    return f"shift {estimate:+.1%}, {span(shift, tolerances, error_rate)}, {shift.rule}"


def against(found: Figures, golden: Golden, tolerances: Json) -> Shift | None:
    """The best that is known of a whole measurement's shift; None where no spread is known at all.

    With rows of the same prompts on both sides a paired test; else the spread between enough runs
    of the golden; else, for a workload of the published size, an assumed one.
    """
    spread, al, reference = tolerances["spread"], found.acceptance_length, golden.acceptance_length
    whole = golden.key["prompts"]
    runs = [run for run in golden.rows if len(run) == whole]
    if runs and len(found.rows) == whole and found.rows_are_exact:
        least = spread["min_pairs"]["value"]
        if shift := interval.paired(found.rows, runs, golden.n, least):
            return replace(shift, measured=al, reference=reference)
    if len(golden.run_lengths) >= spread["min_runs"]["value"]:
        return interval.between_runs(al, reference, golden.run_lengths)
    if golden.key["prompts"] >= spread["assumed_from_prompts"]["value"]:
        runs_known = len(golden.run_lengths)
        return interval.assumed(al, reference, runs_known, spread["assumed"]["value"])
    return None
