"""What a result directory holds: every JSON file, sorted by content, never by name alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import NotMeasured
from utils.evals import al_record, score_files, throughput_files
from utils.evals.score_files import ScoreFile
from utils.evals.throughput_files import Serving
from utils.records import Json
from utils.verdicts import Outcome, Verdict

PLAN = "plan.json"
META_ENV = "meta_env.json"
# A file of this name claims to be a result: what can't be read or recognised is not passed over.
CLAIMS = ("results", ".json")
SIDE_FILES = ".pytorch.json"
STRANGE = (
    "neither an AL record nor a file of lm-eval: move it elsewhere, or run its eval again"
)


@dataclass
class Evidence:
    """Results by kind, each under its name relative to the directory.

    files: names of all files, read or not. problems: files that should be results and can't be
    used. ignored: JSON that is no result.
    """

    files: set[str] = field(default_factory=set)
    scores: list[ScoreFile] = field(default_factory=list)
    al: list[tuple[str, Json]] = field(default_factory=list)
    throughput: list[Serving] = field(default_factory=list)
    problems: list[Verdict] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def gather(directory: Path, pattern: str) -> Evidence:
    """Read and sort all result files in a directory and below it, hidden folders left out."""
    found = Evidence()
    root = str(directory)
    for folder, base in _files(root, ""):
        name = folder + base
        found.files.add(name)
        if not fnmatchcase(base, pattern) or base in (PLAN, META_ENV):
            continue
        try:
            data = _read(f"{root}/{name}", name)
            known = _place(found, name, data)
        except NotMeasured as error:
            if error.reason != "unreadable" or _claims(base):
                found.problems.append(unusable(name, error))
            else:
                found.ignored.append(name)
            continue
        if not known and _claims(base):
            found.problems.append(unusable(name, NotMeasured(STRANGE, "wrong_shape")))
        elif not known:
            found.ignored.append(name)
    return found


def _claims(base: str) -> bool:
    start, end = CLAIMS
    return base.startswith(start) and base.endswith(end) and not base.endswith(SIDE_FILES)


def _place(found: Evidence, name: str, data: Any) -> bool:
    """Put a result where it belongs; False for what isn't one.

    Raises:
        NotMeasured: it is one, and can't be used.
    """
    if al_record.is_al_record(data):
        found.al.append((name, al_record.checked(Path(name), data)))
    elif score_files.is_score_file(data):
        found.scores.append(score_files.read(name, data))
    elif throughput_files.is_throughput_file(data):
        found.throughput.append(throughput_files.read(name, data))
    else:
        return False
    return True


def _files(root: str, folder: str) -> Iterator[tuple[str, str]]:
    """(folder with a slash, name) of every file, sorted by name within its folder."""
    with os.scandir(f"{root}/{folder}") as entries:
        found = sorted(
            (entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries
        )
    for name, is_folder, _ in found:
        if not is_folder:
            yield folder, name
    for name, is_folder, is_link in found:
        if is_folder and not is_link and not name.startswith("."):
            yield from _files(root, f"{folder}{name}/")


def _read(path: str, name: str) -> Any:
    try:
        return records.read_json(path)
    except NotMeasured as error:
        text = str(error).removeprefix(f"{path}: ")
        raise NotMeasured(f"{text}; it was cut off or is not ours: run it again", "unreadable") from error


def unusable(name: str, error: NotMeasured) -> Verdict:
    return Verdict(
        Outcome.NOT_MEASURED,
        name,
        "file",
        reason=error.reason,
        detail=str(error),
        evidence=(name,),
    )
