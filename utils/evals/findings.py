"""Verdicts on what has no value to judge: cells without exactly one result, runs that are amiss."""

from __future__ import annotations

from collections.abc import Sequence

from utils.evals.evidence import PLAN
from utils.verdicts import Outcome, Verdict

SHOWN = 4


def unmeasured(
    cell: str, check: str, reason: str, detail: str, evidence: tuple[str, ...] = ()
) -> Verdict:
    return Verdict(
        Outcome.NOT_MEASURED, cell, check, reason=reason, detail=detail, evidence=evidence
    )


def missing(cell: str, check: str) -> Verdict:
    text = "no result came back; see the logs beside the results, and run it again"
    return unmeasured(cell, check, "missing", text)


def duplicate(cell: str, check: str, names: Sequence[str]) -> Verdict:
    shown = ", ".join(names[:SHOWN]) + (" and others" if len(names) > SHOWN else "")
    text = f"{len(names)} results of one cell: {shown}; keep one, know why"
    return unmeasured(cell, check, "duplicate", text, tuple(names))


def unexpected(cell: str, check: str, names: Sequence[str]) -> Verdict:
    text = f"{names[0]} was not asked for; ask for it, or find out whose it is"
    return unmeasured(cell, check, "unexpected", text, tuple(names))


def odd_one(cell: str, check: str, names: Sequence[str], due: bool) -> Verdict | None:
    """A verdict for every number of files but one, and for one that nobody asked for."""
    if not names:
        return missing(cell, check)
    if len(names) > 1:
        return duplicate(cell, check, names)
    return None if due else unexpected(cell, check, names)


def unplanned() -> Verdict:
    text = "nobody says what was to be measured: give --expected-concs, or a plan or meta_env.json"
    return unmeasured("run", "plan", "no_plan", text)


def synthetic() -> Verdict:
    text = "the plan forces acceptance; evals never run with it: unset SYNTHETIC_ACCEPTANCE"
    return unmeasured("run", "plan", "synthetic_acceptance", text, (PLAN,))
