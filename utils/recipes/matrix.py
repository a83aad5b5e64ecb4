"""The matrix of a sweep for GitHub: a canary, then batches that GitHub takes."""

from __future__ import annotations

from collections.abc import Sequence

from utils.errors import UsageError
from utils.records import Json

LIMIT = 255  # GitHub starts no job at all of a matrix with more than 256
BATCHES = 2  # as many jobs as .github/workflows/run-sweep.yml has for them
SPARE = 3  # a job may take this many times its estimate before it is ended
LEAST_MINUTES = 30


def matrix(rows: Sequence[Json], canary: bool) -> Json:
    """The cells to run: the cheapest first and alone, the others in parts.

    Raises:
        UsageError: more than the workflow has room for.
    """
    due = [row for row in rows if row["state"] == "run"]
    single = [row for row in due if not row["multinode"]]
    first = sorted(single, key=lambda row: row["estimate"]["minutes"])[: 1 if canary else 0]
    rest = [_job(row) for row in single if row not in first]
    multi = [_job(row) for row in due if row["multinode"]]
    for jobs, room in ((rest, LIMIT * BATCHES), (multi, LIMIT)):
        if len(jobs) > room:
            raise UsageError(
                f"{len(jobs)} cells of one kind, a sweep has room for {room}; narrow the recipes,"
                " hardware, scenarios or concurrencies"
            )
    return {
        "schema": "matrix/1",
        "canary": [_job(row) for row in first],
        **{f"batch-{i + 1}": rest[LIMIT * i : LIMIT * (i + 1)] for i in range(BATCHES)},
        "multinode": multi,
    }


def _job(row: Json) -> Json:
    minutes = max(LEAST_MINUTES, round(SPARE * row["estimate"]["minutes"]))
    return {
        "cell": row["id"],
        "runner": row["runner"],
        "embedded_engine": row["embedded_engine"],
        "timeout_minutes": minutes,
    }
