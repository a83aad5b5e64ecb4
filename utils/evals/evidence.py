"""What a result directory holds: every JSON file, sorted by content, never by name alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
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
LOGS = ".jsonl"
CELL_IN_NAME = re.compile(r"_al_(on|off)_mtp(\d+)\.json$")
STRANGE = "neither an AL record nor a file of lm-eval: move it elsewhere, or run its eval again"


TakeScore = Callable[[ScoreFile, set[str]], None]


@dataclass
class Evidence:
    """Results by kind, each under its name relative to the directory.

    problems: files that should be results and can't be used. ignored: JSON that is no result.
    """

    take_score: TakeScore
    logs: set[str] = field(default_factory=set)
    al: list[tuple[str, Json]] = field(default_factory=list)
    throughput: list[Serving] = field(default_factory=list)
    problems: list[Verdict] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def gather(directory: Path, pattern: str, take_score: TakeScore = lambda *_: None) -> Evidence:
    """Read and sort all result files in a directory and below it, hidden folders left out.

    Scores are handed on with the names of lm-eval's logs beside them, and not held.
    """
    found = Evidence(take_score)
    root = str(directory)
    for folder, names in _folders(found, root, ""):
        found.logs.update(folder + base for base in names if base.endswith(LOGS))
        for base in names:
            if fnmatchcase(base, pattern) and base not in (PLAN, META_ENV):
                _sort_in(found, root, folder + base, base)
    return found


def _sort_in(found: Evidence, root: str, name: str, base: str) -> None:
    try:
        data = _read(f"{root}/{name}")
        known = _place(found, name, data)
    except NotMeasured as error:
        if error.reason == "unreadable" and not _claims(base):
            found.ignored.append(name)
        else:
            found.problems.append(unusable(name, error))
        return
    if not known and _claims(base):
        found.problems.append(unusable(name, NotMeasured(STRANGE, "wrong_shape")))
    elif not known:
        found.ignored.append(name)


def _claims(base: str) -> bool:
    start, end = CLAIMS
    return base.startswith(start) and base.endswith(end) and not base.endswith(SIDE_FILES)


def _place(found: Evidence, name: str, data: Any) -> bool:
    """Put a result where it belongs; False for what isn't one.

    Raises:
        NotMeasured: it is one, and can't be used.
    """
    if al_record.is_al_record(data):
        found.al.append((name, _al(name, data)))
    elif score_files.is_score_file(data):
        found.take_score(score_files.read(name, data), found.logs)
    elif throughput_files.is_throughput_file(data):
        found.throughput.append(throughput_files.read(name, data))
    else:
        return False
    return True


def _al(name: str, data: Json) -> Json:
    try:
        record = al_record.checked(Path(name), data)
    except NotMeasured as error:
        text = str(error).removeprefix(f"{name}: ")
        raise NotMeasured(
            f"{text}: measure again with the AL eval of here", error.reason
        ) from error
    held = record["thinking_mode"], str(record["num_speculative_tokens"])
    if (named := CELL_IN_NAME.search(name)) and named.groups() != held:
        raise NotMeasured(
            f"it holds thinking {held[0]}, N={held[1]}: find out which, and rename it or measure "
            "again",
            "name_and_content_differ",
        )
    return record


def _folders(found: Evidence, root: str, folder: str) -> Iterator[tuple[str, list[str]]]:
    """(folder with a slash at its end, names of its files) of every folder, in order of names."""
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            inside = sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries)
    except OSError as error:
        text = f"can't be listed ({error.strerror}): give this user the right to read it"
        found.problems.append(unusable(folder or "./", NotMeasured(text, "unreadable")))
        return
    yield folder, [name for name, is_folder, _ in inside if not is_folder]
    for name, is_folder, is_link in inside:
        if is_folder and not is_link and not name.startswith("."):
            yield from _folders(found, root, f"{folder}{name}/")


def _read(path: str) -> Any:
    try:
        return records.read_json(path)
    except NotMeasured as error:
        text = str(error).removeprefix(f"{path}: ")
        raise NotMeasured(
            f"{text}; it was cut off or is not ours: run it again", "unreadable"
        ) from error


def unusable(name: str, error: NotMeasured) -> Verdict:
    return Verdict(
        Outcome.NOT_MEASURED,
        name,
        "file",
        reason=error.reason,
        detail=str(error),
        evidence=(name,),
    )
