"""The gate on acceptance length: a record against the one golden that has its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from utils.errors import HarnessError, NotMeasured
from utils.evals import al_record
from utils.evals.al_record import Figures
from utils.golden import cell_test, early, match
from utils.golden.cell_test import limits
from utils.golden.interval import Shift
from utils.golden.registry import Golden, Registry
from utils.records import Json
from utils.verdicts import Outcome, Verdict

CHECK = "acceptance_length"
RECHECK = "measure again (python3 -m utils.evals.speedbench_al recheck FILE shows every check)"
UNDECIDED, STOPPED = "undecided", "stopped_undecided"


@dataclass(frozen=True)
class Judgement:
    """A verdict, the AL that it was compared with, if there was one, and by which golden and shift.

    shift: None where no spread is known, or where only a part of the prompts was sent.
    """

    verdict: Verdict
    reference: float | None
    golden: Golden | None = None
    shift: Shift | None = None


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
    if found.accepted == 0:
        return _inactive(record, found.steps)
    try:
        golden = match.find(
            record, goldens.goldens, goldens.tolerances["sample"]["min_share"]["value"]
        )
        if found.version == al_record.VERSION and "early" in record:
            return _sequential(record, found, golden, goldens.tolerances)
        _enough_steps(record["num_speculative_tokens"], found.steps, golden, goldens.tolerances)
    except NotMeasured as error:
        return _no_verdict(record, error.reason, str(error), found.acceptance_length)
    shift = cell_test.against(found, golden, goldens.tolerances)
    return _compare(record, found, golden, goldens.tolerances, shift)


def fill(record: Json, goldens: Registry) -> Verdict:
    """Judge a record, and write the verdict where tools that know the record's keys look for it."""
    judgement = judge(record, goldens)
    verdict = judgement.verdict
    record.update(
        reference_acceptance_length=judgement.reference,
        min_acceptance_length=verdict.lower,
        max_acceptance_length=verdict.upper,
        passed=verdict.outcome is Outcome.PASS,
    )
    return verdict


def _enough_steps(draft_length: int, steps: int, golden: Golden, tolerances: Json) -> None:
    """That a measurement is large enough to be compared: that nothing was cut off or left out.

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
        room = limits(reference, tolerances).upper - reference
        errors = rules["standard_errors"]["value"]
        least = (errors * draft_length / 2 / room) ** 2
        why = f"with fewer, {errors:g} standard errors don't fit into its limits"
    if not steps >= least:
        raise match.TooFew(
            f"{steps} verify steps are no measurement against {golden}, want {least:.0f} ({why}); "
            "were answers cut off, or prompts left out?"
        )


def _sequential(record: Json, found: Figures, golden: Golden, tolerances: Json) -> Judgement:
    """Judge a record that could stop early: take every look again, the first that decides counts.

    Raises:
        NotMeasured: it stopped where nothing was decided.
    """
    planned = record["workload"]["prompts"]
    sent = record["workload"].get("requests", planned)
    ends = early.looks(planned, record["workload"]["concurrency"], tolerances)
    looks = early.path(found.rows, ends, golden, tolerances) if found.rows_are_exact else []
    last = looks[-1] if looks else None
    if last and last.outcome:
        note = f"decided after {last.prompts} of {planned} prompts"
        return _compare(record, found, golden, tolerances, last.shift, last.error_rate, note)
    if sent != planned:
        raise NotMeasured(
            f"it stopped after {sent} of {planned} prompts, where nothing is decided: "
            f"{last or 'its requests have no exact figures of their own'}; measure again",
            STOPPED,
        )
    _enough_steps(record["num_speculative_tokens"], found.steps, golden, tolerances)
    found = replace(found, rows=early.in_file_order(found.rows, tolerances))
    shift = cell_test.against(found, golden, tolerances)
    rate = early.error_rate(planned, ends, tolerances)
    return _compare(record, found, golden, tolerances, shift, rate)


def _compare(
    record: Json,
    found: Figures,
    golden: Golden,
    tolerances: Json,
    shift: Shift | None,
    error_rate: float | None = None,
    note: str = "",
) -> Judgement:
    """By its interval; by the point alone where no spread is known."""
    al, reference = found.acceptance_length, golden.acceptance_length
    if shift:
        al, reference = shift.measured, shift.reference
    allowed = limits(reference, tolerances)
    inside = allowed.lower <= al <= allowed.upper
    outcome = Outcome.PASS if inside else Outcome.FAIL
    if shift:
        outcome = cell_test.decide(shift, tolerances, error_rate)
    by = f"point in {allowed.rule}: no spread is known"
    if shift:
        by = f"{allowed.rule}, {cell_test.describe(shift, tolerances, error_rate)}"
    reason, detail = _why(outcome, al, reference, inside, golden, tolerances)
    verdict = Verdict(
        outcome,
        cell(record),
        CHECK,
        measured=al,
        lower=allowed.lower,
        upper=allowed.upper,
        source=", ".join(filter(None, (str(golden), _origin(golden), by, note))),
        reason=reason,
        detail=detail,
    )
    return Judgement(verdict, reference, golden, None if note else shift)


def _origin(golden: Golden) -> str:
    runs = len(golden.run_lengths)
    if golden.imported:
        return f"imported from {golden.source}"
    return f"{runs} run{'s' if runs > 1 else ''}"


def _why(
    outcome: Outcome, al: float, reference: float, inside: bool, golden: Golden, tolerances: Json
) -> tuple[str, str]:
    """Reason and detail of a verdict."""
    if outcome is Outcome.PASS:
        return "", ""
    away = f"{al / reference - 1:+.1%} from the golden {reference:.4f}"
    if outcome is Outcome.FAIL and al > reference:
        look_for = "look for loops in the outputs, other prompts, acceptance that was forced"
        return "above_golden", f"{away}; {look_for}"
    if outcome is Outcome.FAIL:
        check = "check the draft weights, N, the chat template and what changed in the engine"
        return "below_golden", f"{away}; {check}"
    possible = f"a shift of {tolerances['must_not_pass']['value']:.0%}" if inside else "chance"
    remedy = "" if golden.rows else ", against a golden with rows (python3 -m utils.golden collect)"
    return UNDECIDED, f"{away}, but {possible} can't be excluded; measure again{remedy}"


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
    few = reason in ("insufficient_sample", STOPPED)
    outcome = Outcome.INCONCLUSIVE if few else Outcome.NOT_MEASURED
    verdict = Verdict(outcome, cell(record), CHECK, measured=al, reason=reason, detail=detail)
    return Judgement(verdict, None)
