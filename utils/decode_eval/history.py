"""history.jsonl: one line for every eval that came to something, a failure too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import NotMeasured, UsageError
from utils.records import Json

SCHEMA = "decode_eval_result"
FILE = "history.jsonl"
MEASURED = "measured"
FIGURES = (
    "acceptance_length",
    "standard_error",
    "lower",
    "upper",
    "accepted_tokens",
    "verify_steps",
)


def read(path: Path) -> list[Json]:
    """Every line, in the order in which they came; [] before the first.

    path: the file, or the output_dir that holds it.

    Raises:
        NotMeasured: a line is broken.
    """
    file = path / FILE if path.is_dir() else path
    if not file.exists():
        if file.suffix != ".jsonl":
            raise UsageError(f"{file} is neither a history nor a folder with one")
        return []
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
        if not line:
            continue
        try:
            row = records.parse_json(line)
        except ValueError as error:
            raise NotMeasured(f"{file}:{number}: not JSON ({error})") from error
        rows.append(checked(row, f"{file}:{number}"))
    return rows


def checked(row: Any, where: str) -> Json:
    """A result that keeps its schema.

    Raises:
        NotMeasured: it doesn't.
    """
    if problem := records.schema_problem(row, SCHEMA):
        raise NotMeasured(f"{where}: {problem}", "unreadable_result")
    return dict(row)


def append(path: Path, rows: Sequence[Json]) -> None:
    """Add lines; the file is written whole, so that a full disk leaves the old one."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for row in rows:
        checked(row, str(path))
        text += json.dumps(row, sort_keys=True, allow_nan=False) + "\n"
    records.write_text(path, text)


def key(row: Json) -> tuple[int, int, str]:
    """What tells one eval from another of the same step."""
    return row["step"], row["attempt"], row["started"]


def measured(rows: Iterable[Json]) -> list[Json]:
    """The last valid measurement of each step, by step."""
    found = {row["step"]: row for row in rows if row["outcome"] == MEASURED}
    return [found[step] for step in sorted(found)]


def since_best(rows: Sequence[Json]) -> int:
    """Measurements of later steps than the best one's."""
    top = best(rows)
    return 0 if top is None else sum(row["step"] > top["step"] for row in measured(rows))


def best(rows: Iterable[Json]) -> Json | None:
    """The measurement with the highest AL of the first prompt set; the earlier one of equals."""
    return max(
        measured(rows),
        key=lambda row: (row["sets"][0]["acceptance_length"], -row["step"]),
        default=None,
    )
