"""Verdicts as values: only `pass` passes, and one function turns them into an exit status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from utils import errors


class Outcome(str, Enum):
    """What a check came to."""

    PASS = "pass"
    FAIL = "fail"
    NOT_MEASURED = "not_measured"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Verdict:
    """One line of the gate.

    cell: what was judged, e.g. "arithmetic conc=8" or "AL off N=3". measured: the value, None
    when there is none. lower, upper: inclusive limits. source: the rule or file that set the
    limits. reason: a name in snake_case for every outcome but pass. detail: one line for people,
    with the remedy where there is one. evidence: files that were judged.
    """

    outcome: Outcome
    cell: str
    check: str
    measured: float | None = None
    lower: float | None = None
    upper: float | None = None
    source: str = ""
    reason: str = ""
    detail: str = ""
    evidence: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value, "evidence": list(self.evidence)}

    def limits(self) -> str:
        """The limits as people read them; empty when there are none."""
        if self.lower is None and self.upper is None:
            return ""
        if self.upper is None:
            return f">= {self.lower:.4g}"
        if self.lower is None:
            return f"<= {self.upper:.4g}"
        return f"{self.lower:.4g}..{self.upper:.4g}"

    def why(self) -> str:
        """Reason and detail as one line; empty for a pass that needs no words."""
        return ": ".join(filter(None, (self.reason, self.detail)))

    def line(self) -> str:
        """Outcome, cell, measured, limits, source of the limits; then why."""
        parts = [f"{self.outcome.value.upper():<12}", f"{self.cell}:", self.check]
        parts.append("no value" if self.measured is None else f"{self.measured:.4f}")
        if self.limits():
            parts.append(f"want {self.limits()}")
        if self.source:
            parts.append(f"({self.source})")
        return one_line(" ".join(parts) + (f" — {self.why()}" if self.why() else ""))


def one_line(text: str) -> str:
    """Text whose line breaks, colours and the like show as escapes: it may quote others' words."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def exit_status(verdicts: Iterable[Verdict]) -> int:
    """0 all pass · 1 something failed · 3 nothing failed, but something (or all) has no verdict."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if Outcome.FAIL in outcomes:
        return errors.FAIL
    return errors.PASS if outcomes == {Outcome.PASS} else errors.NOT_MEASURED
