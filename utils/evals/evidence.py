"""What a result directory holds: every JSON file, sorted by content, never by name alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import NotMeasured
from utils.evals import al_record, score_files, throughput_files
from utils.evals.score_files import ScoreFile
from utils.records import Json
from utils.verdicts import Outcome, Verdict

PLAN = "plan.json"
META_ENV = "meta_env.json"
# A file of this name claims to be a result: what can't be read or recognised is not passed over.
CLAIMS = "results*.json"
SIDE_FILES = "*.pytorch.json"


@dataclass
class Evidence:
    """Results by kind; problems: files that should be results and can't be used."""

    scores: list[ScoreFile] = field(default_factory=list)
    al: list[tuple[Path, Json]] = field(default_factory=list)
    throughput: list[tuple[Path, Json]] = field(default_factory=list)
    problems: list[Verdict] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def gather(directory: Path, pattern: str) -> Evidence:
    """Read and sort all result files in a directory and below it, hidden folders left out."""
    found = Evidence()
    for path in _files(directory, pattern):
        name = str(path.relative_to(directory))
        is_result = fnmatch(path.name, CLAIMS) and not fnmatch(path.name, SIDE_FILES)
        try:
            data = _read(path)
            if put := _place(found, data):
                is_result = True
                put(path, data)
            else:
                raise NotMeasured("neither an AL record nor a file of lm-eval", "wrong_shape")
        except NotMeasured as error:
            if is_result:
                found.problems.append(unusable(name, error))
            else:
                found.ignored.append(name)
    return found


def _place(found: Evidence, data: Any) -> Callable[[Path, Any], None] | None:
    """Where a file of this content belongs; None for what isn't a result."""
    if al_record.is_al_record(data):
        return lambda path, data: found.al.append((path, al_record.checked(path, data)))
    if score_files.is_score_file(data):
        return lambda path, data: found.scores.append(score_files.read(path, data))
    if throughput_files.is_throughput_file(data):
        return lambda path, data: found.throughput.append((path, throughput_files.checked(data)))
    return None


def _files(directory: Path, pattern: str) -> Iterator[Path]:
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if fnmatch(name, pattern) and name not in (PLAN, META_ENV):
                yield Path(folder, name)


def _read(path: Path) -> Any:
    try:
        return records.read_json(path)
    except NotMeasured as error:
        raise NotMeasured(str(error), "unreadable") from error


def unusable(name: str, error: NotMeasured) -> Verdict:
    return Verdict(
        Outcome.NOT_MEASURED,
        name,
        "file",
        reason=error.reason,
        detail=str(error),
        evidence=(name,),
    )
