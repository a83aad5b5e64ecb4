"""What a report shows, gathered from a result directory; rendering is other modules' work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import NotMeasured
from utils.evals import evidence, validate_scores
from utils.records import Json
from utils.verdicts import Outcome, Verdict, exit_status

HEADLINE = {
    0: "PASS: every check passed",
    1: "FAIL: a measured value failed its gate",
    3: "NOT MEASURED: something required has no verdict",
}


@dataclass(frozen=True)
class Row:
    """One verdict as the columns of a table."""

    outcome: Outcome
    cell: str
    check: str
    measured: str
    limits: str
    source: str
    why: str


@dataclass(frozen=True)
class Position:
    """Acceptance at one draft position of one record, shares of verify steps."""

    cell: str
    position: int
    accepted: str
    conditional: str


@dataclass(frozen=True)
class Report:
    """A result directory, ready to be rendered; facts are name and value of what ran."""

    directory: Path
    status: int
    summary: str
    facts: list[tuple[str, str]]
    rows: list[Row]
    positions: list[Position]
    notes: list[str]
    files: list[Path]


def gather(directory: Path) -> Report:
    """Judge a result directory anew and collect what explains the verdicts.

    Raises:
        UsageError: the directory, a thresholds or a golden file is unusable.
    """
    verdicts = validate_scores.validate(directory)
    found = evidence.gather(directory, "*.json")
    al = [record for _, record in found.al]
    return Report(
        directory=directory,
        status=exit_status(verdicts),
        summary=validate_scores.summary(verdicts),
        facts=_facts(directory, al),
        rows=[_row(verdict) for verdict in verdicts],
        positions=[position for record in al for position in _positions(record)],
        notes=[note for record in al for note in _notes(record)],
        files=sorted(p for p in directory.iterdir() if p.is_file() and not p.name.startswith(".")),
    )


def _row(verdict: Verdict) -> Row:
    return Row(
        outcome=verdict.outcome,
        cell=verdict.cell,
        check=verdict.check,
        measured="—" if verdict.measured is None else f"{verdict.measured:.4f}",
        limits=verdict.limits() or "—",
        source=verdict.source or "—",
        why=": ".join(filter(None, (verdict.reason, verdict.detail))),
    )


def _facts(directory: Path, al: list[Json]) -> list[tuple[str, str]]:
    try:
        plan: Json = records.read_json(directory / evidence.PLAN)
    except NotMeasured:
        plan = {}
    names = ("run_id", "commit", "recipe", "model", "hw", "precision", "engine", "spec_decoding")
    facts = [(name, str(plan[name])) for name in names if plan.get(name) is not None]
    versions = {r["server"]["engine_version"] for r in al if r.get("server")} - {None}
    return [*facts, *(("engine_version", version) for version in sorted(versions))]


def _cell(record: Json) -> str:
    return f"AL {record['thinking_mode']} N={record['num_speculative_tokens']}"


def _positions(record: Json) -> list[Position]:
    found: dict[str, Any] = record.get("estimate") or {}
    pairs = zip(found.get("per_position", ()), found.get("conditional", ()), strict=False)
    return [
        Position(_cell(record), i, f"{share:.4f}", "—" if given is None else f"{given:.4f}")
        for i, (share, given) in enumerate(pairs, start=1)
    ]


def _notes(record: Json) -> list[str]:
    """What a reader of the AL must know beside the verdict."""
    notes, cell, found = [], _cell(record), record.get("estimate")
    if found and found["standard_error"] is not None:
        notes.append(
            f"{cell}: {found['acceptance_length']:.4f}, 95 % interval {found['lower']:.4f} to "
            f"{found['upper']:.4f} over {found['requests_with_steps']} requests (clustered); "
            f"mean of the requests' own {found['mean_request_acceptance_length']:.4f}"
        )
    workload = record.get("workload", {})
    if workload.get("proxy"):
        notes.append(
            f"{cell}: prompts are a proxy ({workload['dataset']}, {workload['prompts']} prompts), "
            "not SPEED-Bench"
        )
    notes += [
        f"{cell}: {check['name']}: {check['measured']}, want {check['expected']}"
        for check in record.get("checks", ())
        if check["ok"] is False
    ]
    return notes
