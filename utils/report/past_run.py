"""One run in a file of its own: every measured value with what it takes to compare it later."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from utils import records
from utils.errors import NotMeasured, UsageError
from utils.evals import job_identity
from utils.records import Json
from utils.report.content import Report
from utils.verdicts import Outcome

SCHEMA = "past_run"
JUDGED = (Outcome.PASS, Outcome.FAIL)


def of(report: Report) -> Json:
    """A report as a past run.

    Raises:
        NotMeasured: no job says when it started, so nothing could tell runs apart.
    """
    abouts = [job.about for job in report.jobs]
    started = [about["started"] for about in abouts if about.get("started")]
    if not started:
        raise NotMeasured(
            f"{report.directory}: no plan.json or meta_env.json says when it started; only runs of "
            "a recipe can be stored or compared"
        )
    return {
        "schema": f"{SCHEMA}/1",
        "run_ids": sorted({about["run_id"] for about in abouts if about.get("run_id")}),
        "started": max(started, key=records.parse_time),
        "status": report.status,
        "summary": report.summary,
        "points": [*_lengths(report), *_scores(report), *_speeds(report)],
    }


def write(run: Json, folder: Path) -> Path:
    """Into a folder of past runs; storing a run again replaces it."""
    stamp = records.format_time(records.parse_time(run["started"]))[:19].replace(":", "")
    own = hashlib.sha256("\n".join(run["run_ids"]).encode()).hexdigest()[:8]
    path = folder / f"{stamp}Z-{own}.json"
    records.write_json(path, run, SCHEMA)
    return path


def checked(name: str, data: object) -> Json:
    """What was read from a file of that name.

    Raises:
        UsageError: it is no past run.
    """
    if problem := records.schema_problem(data, SCHEMA):
        raise UsageError(f"{name} is no past run of `utils.report store`: {problem}")
    assert isinstance(data, dict)
    return data


def _lengths(report: Report) -> Iterator[Json]:
    abouts = {job.name: job.about for job in report.jobs}
    for length in report.lengths:
        yield {
            **_point(abouts[length.job], "al", length.cell, length.outcome),
            "metric": "acceptance_length",
            "value": length.acceptance_length if length.judged else None,
            "rows": [list(row) for row in length.rows],
            "rows_are_exact": length.rows_are_exact,
            "protocol": dict(length.protocol),
            "provenance": {**_provenance(abouts[length.job]), **length.provenance},
        }


def _scores(report: Report) -> Iterator[Json]:
    abouts = {job.name: job.about for job in report.jobs}
    for score in report.scores:
        yield {
            **_point(abouts[score.job], "score", score.cell, score.outcome),
            "metric": score.metric,
            "value": score.score if score.outcome in JUDGED else None,
            "samples": score.samples,
            "protocol": dict(score.protocol),
        }


def _speeds(report: Report) -> Iterator[Json]:
    for speed in report.speeds:
        yield {
            **_point(speed.about, "serving", speed.cell, speed.outcome),
            "metric": "output_tokens_per_s",
            "value": speed.tokens_per_s if speed.outcome in JUDGED else None,
            "protocol": dict(speed.protocol),
        }


def _point(about: Json, kind: str, cell: str, outcome: Outcome) -> Json:
    identity = job_identity.identity(about)
    return {
        "subject": {name: None if v is None else str(v) for name, v in identity.items()},
        "kind": kind,
        "cell": cell,
        "outcome": outcome.value,
        "samples": None,
        "rows": [],
        "rows_are_exact": False,
        "provenance": _provenance(about),
    }


def _provenance(about: Json) -> dict[str, str]:
    return {"commit": str(about["commit"])[:12]} if about.get("commit") else {}
