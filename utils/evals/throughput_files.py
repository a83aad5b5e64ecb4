"""Serving results: that every request was served and something was generated."""

from __future__ import annotations

from typing import Any

from utils import records
from utils.errors import NotMeasured
from utils.records import Json
from utils.verdicts import Outcome, Verdict

TASK = "serving"
CHECK = "requests_completed"


def is_throughput_file(data: Any) -> bool:
    return isinstance(data, dict) and data.get("task") == TASK


def checked(data: Any) -> Json:
    """A serving result that has the shape of one.

    Raises:
        NotMeasured: it breaks its schema.
    """
    if problem := records.schema_problem(data, "serving"):
        raise NotMeasured(problem, "wrong_shape")
    return dict(data)


def cell_of(data: Json) -> tuple[int, int, int]:
    return data["isl"], data["osl"], data["concurrency"]


def judge(data: Json, cell: str, evidence: tuple[str, ...]) -> Verdict:
    """All requests completed, and tokens came out; how fast is not judged here."""
    requested, completed = data["requested"], data["completed"]
    tokens = data["total_output_tokens"]
    if completed != requested or data["failed"]:
        why = data["first_error"] or "nobody says what became of the others"
        reason, detail = "requests_failed", f"{completed} of {requested} completed: {why}"
    elif not tokens > 0:
        reason, detail = "no_tokens", f"{completed} requests came to {tokens} output tokens"
    else:
        reason, detail = "", f"{tokens} output tokens, {data['output_tokens_per_s']:.1f} a second"
    return Verdict(
        Outcome.NOT_MEASURED if reason else Outcome.PASS,
        cell,
        CHECK,
        measured=float(completed),
        lower=float(requested),
        upper=float(requested),
        source="requests asked for",
        reason=reason,
        detail=detail,
        evidence=evidence,
    )
