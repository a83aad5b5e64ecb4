"""Attempts → rows: one per cell, the chosen attempt by the time that is written in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from utils import records
from utils.evals.job_results import Attempt, Jobs
from utils.records import Json

SCHEMA = "eval_results/1"
KINDS = ("score", "al", "serving")
NAMES = ("model_prefix", "model", "precision", "hw", "engine", "topology", "spec_decoding")
MISSING = ("missing", "no result came back; see its job's logs, and run it again")
UNDATED = ("undated_attempts", "several results, one without a time of its own; keep one of them")
SAME_TIME = ("same_time", "several results of the same time; keep one of them")


@dataclass(frozen=True)
class Cell:
    """Everything on one cell: its attempts by their own time, and which of them counts.

    first: any of them, or the lack of one. reason, detail: why none was chosen.
    """

    first: Attempt
    attempts: Sequence[Attempt]
    chosen: Attempt | None
    reason: str
    detail: str


def cells(jobs: Jobs) -> list[Cell]:
    """Every cell that was asked for or came back, in numeric order."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in jobs.attempts:
        groups.setdefault(attempt.key, []).append(attempt)
    return [_cell(group) for group in sorted(groups.values(), key=lambda g: _order(g[0]))]


def _cell(group: Sequence[Attempt]) -> Cell:
    attempts = sorted((a for a in group if a.file), key=lambda a: (a.time or 0.0, a.file or ""))
    chosen, (reason, detail) = _choose(attempts)
    return Cell(group[0], attempts, chosen, reason, detail)


def table(jobs: Jobs) -> Json:
    """Everything that was collected, in numeric order."""
    rows = [_row(cell) for cell in cells(jobs)]
    missing = [row for row in rows if not row["attempts"]]
    undecided = [row for row in rows if row["attempts"] and row["chosen"] is None]
    present = [row for row in rows if row["attempts"]]
    return {
        "schema": SCHEMA,
        "complete": bool(present) and not missing and not undecided and not jobs.lost,
        "expected": len(rows),
        "present": len(present),
        "rows": present,
        "missing": [{"cell": _name(row), "reason": row["detail"]} for row in missing],
        "undecided": [{"cell": _name(row), "reason": row["detail"]} for row in undecided],
        "dropped": [
            {"file": one.file, "reason": one.reason}
            for one in sorted(jobs.dropped, key=lambda one: one.file)
        ],
    }


def _row(cell: Cell) -> Json:
    """One cell. An AL is no score, and a rate is neither: each has a column of its own."""
    first, chosen = cell.first, cell.chosen
    row: Json = {
        **first.job,
        "kind": first.kind,
        "task": first.cell.get("task"),
        "concurrency": first.cell.get("concurrency"),
        "thinking": first.cell["thinking"],
        "num_speculative_tokens": first.cell["n"],
        "isl": first.cell["isl"],
        "osl": first.cell["osl"],
        "metric": None,
        "score": None,
        "acceptance_length": None,
        "output_tokens_per_s": None,
        "lower": None,
        "upper": None,
        "outcome": "not_measured",
        "reason": cell.reason,
        "detail": cell.detail,
        "chosen": None,
        "attempts": [_attempt(attempt) for attempt in cell.attempts],
    }
    if chosen:
        verdict = chosen.verdict
        value = {"score": "score", "al": "acceptance_length"}.get(chosen.kind)
        row.update(
            metric=verdict.check,
            output_tokens_per_s=chosen.output_tokens_per_s,
            outcome=verdict.outcome.value,
            reason=verdict.reason,
            detail=verdict.detail,
            chosen=chosen.file,
        )
        if value:
            row.update({value: verdict.measured, "lower": verdict.lower, "upper": verdict.upper})
    return row


def _choose(attempts: Sequence[Attempt]) -> tuple[Attempt | None, tuple[str, str]]:
    """The latest by its own word; None, and why, where that can't be told."""
    if len(attempts) < 2:
        return (attempts[0], ("", "")) if attempts else (None, MISSING)
    times = [attempt.time for attempt in attempts]
    if None in times:
        return None, UNDATED
    if times[-1] == times[-2]:
        return None, SAME_TIME
    return attempts[-1], ("", "")


def _attempt(attempt: Attempt) -> Json:
    verdict = attempt.verdict
    return {
        "file": attempt.file,
        "run_id": attempt.run_id,
        "measured_at": None if attempt.time is None else records.format_time(attempt.time),
        "measured": verdict.measured,
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
    }


def _order(attempt: Attempt) -> tuple[Any, ...]:
    """Words by alphabet, numbers by size; what isn't said comes first."""
    job, cell = attempt.job, attempt.cell
    return (
        *(str(job[name] or "") for name in NAMES),
        *(cell[name] or 0 for name in ("isl", "osl")),
        cell["n"] or 0,
        cell["thinking"] or "",
        KINDS.index(attempt.kind),
        cell.get("task") or "",
        cell.get("concurrency") or 0,
        repr(sorted(job.items())),
    )


def _name(row: Json) -> str:
    """A cell in words, the whole of it."""
    about = " ".join(str(row[name]) for name in NAMES if row[name] is not None)
    lengths = f"isl={row['isl']} osl={row['osl']}"
    cell = {
        "score": f"{row['task']} conc={row['concurrency']}",
        "al": f"AL {row['thinking']} N={row['num_speculative_tokens']}",
        "serving": f"serving conc={row['concurrency']}",
    }[row["kind"]]
    return f"{about} {lengths}: {cell}"
