"""One SPEED-Bench prompt file: prepared once, by one process, and only if it is whole."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from utils import models
from utils.errors import NotMeasured, UsageError
from utils.evals import prompt_files, speedbench_source
from utils.records import Json

LABEL = "speed-bench"  # as goldens name it
POLL_S = 0.2

# Rows by category, of each configuration.
_QUALITATIVE = (
    *("coding", "humanities", "math", "multilingual", "qa", "rag", "reasoning", "roleplay"),
    *("stem", "summarization", "writing"),
)
_THROUGHPUT = ("low_entropy", "mixed", "high_entropy")
CONFIGS: Mapping[str, Mapping[str, int]] = {
    "qualitative": dict.fromkeys(_QUALITATIVE, 80),
    **{f"throughput_{size}k": dict.fromkeys(_THROUGHPUT, 512) for size in (1, 2, 8, 16, 32)},
}


def prepare(directory: Path, config: str, category: str | None, timeout_s: float) -> Path:
    """The prepared file of a configuration, or of one category of it.

    Raises:
        UsageError: unknown category, unwritable folder, no access to a source, bad rows.
        NotMeasured: the network, the script or the time failed.
    """
    if category is not None and category not in CONFIGS[config]:
        raise UsageError(
            f"{config} has no category {category!r}; {models.near(category, CONFIGS[config])}"
        )
    deadline = time.monotonic() + timeout_s
    target = directory / prompt_files.file_name(config, category)
    if _is_ready(target):
        return target
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _alone(directory, deadline):
            if not _is_ready(target):  # another preparation may have ended while this one waited
                _prepare(directory, target, config, category, deadline)
    except OSError as error:
        raise UsageError(
            f"{error}: {directory} must be writable, with some GB to spare; choose --output-dir"
        ) from error
    return target


def _is_ready(target: Path) -> bool:
    facts = prompt_files.prepared_facts(target)
    made_from = facts.get("revision"), (facts.get("script") or {}).get("sha256")
    return made_from == (speedbench_source.REVISION, speedbench_source.SCRIPT_SHA256)


@contextlib.contextmanager
def _alone(directory: Path, deadline: float) -> Iterator[None]:
    path = directory / ".prepare.lock"
    said = False
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise NotMeasured(f"{path}: another preparation still holds it") from None
            if not said:
                print(f"{directory}: another preparation is at work; waiting", file=sys.stderr)
                said = True
            time.sleep(POLL_S)
        yield


def _prepare(
    directory: Path, target: Path, config: str, category: str | None, deadline: float
) -> None:
    for left in directory.glob(".work-*"):  # of a preparation that was killed
        shutil.rmtree(left, ignore_errors=True)
    print(f"preparing {target} (downloads up to some GB)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".work-") as work:
        job = speedbench_source.Job(directory, Path(work), deadline)
        made, facts = speedbench_source.materialise(job, config, category)
        # The script's own lines are kept, so that the file is what upstream would have written.
        lines = [line for line in made.read_text("utf-8").split("\n") if line.strip()]
        both = zip(lines, prompt_files.read_rows(made), strict=True)
        chosen = [(line, row) for line, row in both if category in (None, row.get("category"))]
        _check(target, [row for _, row in chosen], config, category)
    facts |= {
        "dataset": LABEL,
        "revision": speedbench_source.REVISION,
        "proxy": False,
        "config": config,
        "category": category,
    }
    prompt_files.publish(target, [line for line, _ in chosen], facts)
    shutil.rmtree(job.downloads, ignore_errors=True)  # kept until here: a retry resumes


def _check(target: Path, rows: list[Json], config: str, category: str | None) -> None:
    """Refuse what the script left undone: it ends with 0 for a source that it doesn't know."""
    wanted = {name: n for name, n in CONFIGS[config].items() if category in (None, name)}
    found = Counter(str(row.get("category")) for row in rows)
    wrong = [
        f"{name} has {found[name]} rows, want {wanted.get(name, 0)}"
        for name in sorted(wanted.keys() | found.keys())
        if found[name] != wanted.get(name, 0)
    ]
    if wrong:
        raise UsageError(f"{target}: {'; '.join(wrong)}: not the data set that the pins describe")
    prompt_files.refuse_bad(target, [prompt_files.conversation(target, row) for row in rows])


def count_tokens(path: Path, timeout_s: float) -> None:
    """Print statistics of the first turns in tokens of the vocabulary that SPEED-Bench uses."""
    job = speedbench_source.Job(path.parent, path.parent, time.monotonic() + timeout_s)
    speedbench_source.drive(job, ["count", str(path)])
