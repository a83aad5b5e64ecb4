"""The gate on acceptance length: a record against the one golden that has its key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any

from utils.errors import HarnessError, NotMeasured
from utils.evals import al_record
from utils.golden import match
from utils.golden.registry import FOLDER, Golden, Registry, load
from utils.records import Json
from utils.verdicts import Outcome, Verdict

__all__ = ["GOLDEN_DIR", "Judgement", "judge", "limits", "load"]

GOLDEN_DIR = FOLDER
CHECK = "acceptance_length"
RECHECK = "measure again (python3 -m utils.evals.speedbench_al recheck FILE shows every check)"


@dataclass(frozen=True)
class Judgement:
    """A verdict and the golden value that it was compared with, if there was one."""

    verdict: Verdict
    reference: float | None


@dataclass(frozen=True)
class Limits:
    """Inclusive limits, and the rule that set them."""

    lower: float
    upper: float
    rule: str


def cell(record: Mapping[str, Any]) -> str:
    return f"AL {record.get('thinking_mode')} N={record.get('num_speculative_tokens')}"


def judge(record: Json, goldens: Registry) -> Judgement:
    """Judge one AL record by what it observed; a bad record becomes a verdict, never an error."""
    try:
        found = al_record.figures(record)
    except HarnessError as error:
        reason = getattr(error, "reason", "unusable_record")
        text = str(error).removeprefix(f"{reason}: ")
        return _no_verdict(record, reason, f"{text}; {RECHECK}")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # The raw part comes from outside: whatever arithmetic it breaks, it has no AL.
        text = f"raw holds what no engine says ({type(error).__name__}: {error})"
        return _no_verdict(record, "wrong_shape", f"{text}; {RECHECK}")
    if found.accepted == 0:
        return _inactive(record, found.steps)
    sample = goldens.tolerances["sample"]
    try:
        golden = match.find(record, goldens.goldens, sample["min_share"]["value"])
        _enough_steps(record["num_speculative_tokens"], found.steps, golden, goldens.tolerances)
    except NotMeasured as error:
        return _no_verdict(record, error.reason, str(error), found.acceptance_length)
    return _compare(record, found.acceptance_length, golden, goldens.tolerances)


def _enough_steps(draft_length: int, steps: int, golden: Golden, tolerances: Json) -> None:
    """That a measurement is large enough to be compared.

    The spread between requests says nothing here: golden and record sent the same prompts, which
    are no random sample. What counts is whether the record holds as much as the golden.

    Raises:
        TooFew: it isn't.
    """
    rules, reference = tolerances["sample"], golden.acceptance_length
    if golden.steps is not None:
        least, why = (
            rules["min_share"]["value"] * golden.steps,
            f"a run of it has {golden.steps:.0f}",
        )
    else:
        room = limits(reference, golden.run_lengths, tolerances).upper - reference
        errors = rules["standard_errors"]["value"]
        least = (errors * draft_length / 2 / room) ** 2
        why = f"with fewer, {errors:g} standard errors don't fit into its limits"
    if not steps >= least:
        raise match.TooFew(
            f"{steps} verify steps are no measurement against {golden}, want {least:.0f} ({why}); "
            "were answers cut off, or prompts left out?"
        )


def limits(reference: float, run_lengths: Sequence[float], tolerances: Json) -> Limits:
    """Reference ± the relative floor, widened by the spread between enough runs up to a cap.

    k · s · √(1 + 1/n): one new run against the mean of n.
    """
    floor = tolerances["relative_floor"]["value"]
    spread = tolerances["spread"]
    margin, rule = floor * reference, f"±{floor:.0%} floor"
    n = len(run_lengths)
    if n >= spread["min_runs"]["value"]:
        k, cap = spread["k"]["value"], spread["relative_cap"]["value"]
        wide = k * stdev(run_lengths) * math.sqrt(1 / n + 1)
        if wide > margin:
            margin, rule = min(wide, cap * reference), f"±{k:g}·sd between runs"
            rule += f", capped at {cap:.0%}" if wide > cap * reference else ""
    return Limits(reference - margin, reference + margin, rule)


def _compare(record: Json, al: float, golden: Golden, tolerances: Json) -> Judgement:
    allowed = limits(golden.acceptance_length, golden.run_lengths, tolerances)
    runs = len(golden.run_lengths)
    origin = f"imported from {golden.source}, spread assumed"
    if not golden.imported:
        origin = f"{runs} run{'s' if runs > 1 else ''}"
    inside = allowed.lower <= al <= allowed.upper
    verdict = Verdict(
        Outcome.PASS if inside else Outcome.FAIL,
        cell(record),
        CHECK,
        measured=al,
        lower=allowed.lower,
        upper=allowed.upper,
        source=f"{golden}, {origin}, {allowed.rule}",
        reason="" if inside else _side(al, golden.acceptance_length),
        detail="" if inside else _remedy(al, golden.acceptance_length),
    )
    return Judgement(verdict, golden.acceptance_length)


def _side(al: float, reference: float) -> str:
    return "above_golden" if al > reference else "below_golden"


def _remedy(al: float, reference: float) -> str:
    away = f"{al / reference - 1:+.1%} from the golden {reference:.4f}; "
    if al > reference:
        return away + "look for loops in the outputs, other prompts, acceptance that was forced"
    return away + "check the draft weights, N, the chat template and what changed in the engine"


def _inactive(record: Json, steps: int) -> Judgement:
    verdict = Verdict(
        Outcome.FAIL,
        cell(record),
        CHECK,
        measured=1.0,
        source="a drafter must have something accepted",
        reason="drafter_inactive",
        detail=f"none of the draft tokens of {steps} steps was accepted: "
        "check that the draft weights are loaded and belong to this model",
    )
    return Judgement(verdict, None)


def _no_verdict(record: Json, reason: str, detail: str, al: float | None = None) -> Judgement:
    few = reason == "insufficient_sample"
    outcome = Outcome.INCONCLUSIVE if few else Outcome.NOT_MEASURED
    verdict = Verdict(outcome, cell(record), CHECK, measured=al, reason=reason, detail=detail)
    return Judgement(verdict, None)
