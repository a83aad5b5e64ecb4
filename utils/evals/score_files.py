"""lm-eval's own result files: what they are, and whether a score in one can be believed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from utils import records
from utils.errors import NotMeasured
from utils.records import Json

MARKS = ("lm_eval_version", "config", "configs", "n-samples")
CONC_IN_NAME = re.compile(r"_conc(\d+)(?=[._]|$)")
CONC_IN_ARGS = re.compile(r"(?:^|,)\s*num_concurrent=(\d+)\s*(?:,|$)")
MAX_UNUSABLE_SHARE = 0.10


@dataclass(frozen=True)
class ScoreFile:
    """One file of lm-eval. concurrency: requests in flight. started: unix seconds, if written."""

    path: Path
    results: Json
    data: Json
    concurrency: int
    started: float | None

    @property
    def tasks(self) -> list[str]:
        """Tasks in it, without groups, whose rows only sum up those of others."""
        groups = self.data.get("groups") or {}
        return [task for task in self.results if task not in groups]

    @property
    def model(self) -> Any:
        """The served name that lm-eval was given."""
        return _model_arg(self.data, "model")


def is_score_file(data: Any) -> bool:
    """Recognised by content; a file's name decides nothing."""
    return isinstance(data, dict) and "results" in data and any(mark in data for mark in MARKS)


def read(path: Path, data: Json) -> ScoreFile:
    """What was read from path, as a file of lm-eval.

    Raises:
        NotMeasured: it has another shape, or its concurrency is unknown or contradictory.
    """
    results = data["results"]
    if not (isinstance(results, dict) and results):
        raise NotMeasured("`results` holds no task: lm-eval was cut off", "wrong_shape")
    if broken := [task for task, row in results.items() if not isinstance(row, dict)]:
        raise NotMeasured(f"`results` of {broken[0]} is not an object", "wrong_shape")
    date = data.get("date")
    started = float(date) if _is_number(date) else None
    return ScoreFile(path, results, data, _concurrency(path, data), started)


def _concurrency(path: Path, data: Json) -> int:
    """By lm-eval's own arguments; the name must agree, and decides where they say nothing."""
    inside = _model_arg(data, "num_concurrent")
    inside = int(inside) if str(inside).isdecimal() else None
    named = CONC_IN_NAME.search(path.stem)
    outside = int(named.group(1)) if named else None
    if inside is not None and outside is not None and inside != outside:
        raise NotMeasured(
            f"it was measured with num_concurrent={inside}, its name says conc{outside}",
            "concurrency_mismatch",
        )
    found = outside if inside is None else inside
    if not found:
        raise NotMeasured(
            "neither config.model_args.num_concurrent nor a name with _conc<N> tells its "
            "concurrency",
            "unknown_concurrency",
        )
    return found


def _model_arg(data: Json, name: str) -> Any:
    """One of lm-eval's model arguments, which older versions write as one string."""
    config = data.get("config")
    args = config.get("model_args") if isinstance(config, dict) else None
    if isinstance(args, dict):
        return args.get(name)
    if name == "num_concurrent" and (found := CONC_IN_ARGS.search(str(args))):
        return found.group(1)
    return None


def score(file: ScoreFile, task: str, metric: str) -> float:
    """The score of a task.

    Raises:
        NotMeasured: it isn't there, isn't a number, or can't be a score.
    """
    row = file.results[task]
    if metric not in row:
        has = ", ".join(name for name in row if "," in name and "_stderr," not in name) or "none"
        raise NotMeasured(f"no metric {metric!r}; metrics there: {has}", "missing_metric")
    value = row[metric]
    if not _is_number(value):
        raise NotMeasured(f"{metric} is {value!r}, not a number", "wrong_shape")
    if not 0.0 <= value <= 1.0:
        raise NotMeasured(f"{metric} is {value}; a score lies in 0..1", "impossible")
    return float(value)


def other_extractions(file: ScoreFile, task: str, metric: str) -> str:
    """The same answers under lm-eval's other filters, for people; empty when there are none."""
    name, _, mine = metric.partition(",")
    found = {
        key.partition(",")[2]: value
        for key, value in file.results[task].items()
        if key.startswith(f"{name},") and key != metric and _is_number(value)
    }
    return ", ".join(f"{flt} {value:.4f}" for flt, value in found.items() if flt != mine)


def check_samples(file: ScoreFile, task: str, whole: int | None) -> int:
    """That all documents of the task were evaluated; returns how many.

    Raises:
        NotMeasured: counts are missing, or a part was left out, by a limit or otherwise.
    """
    table = file.data.get("n-samples")
    counts = table.get(task) if isinstance(table, dict) else None
    counts = counts if isinstance(counts, dict) else {}
    original, effective = counts.get("original"), counts.get("effective")
    if not (_is_count(original) and _is_count(effective)):
        raise NotMeasured(
            f"`n-samples` does not say how many documents of {task} were evaluated", "no_counts"
        )
    wanted = original if whole is None else whole
    config = file.data.get("config")
    limit = config.get("limit") if isinstance(config, dict) else None
    if effective != wanted or original != wanted or limit is not None:
        declared = f", limit {limit}" if limit is not None else ""
        raise NotMeasured(
            f"{effective} of {wanted} documents were evaluated{declared}; run the whole task",
            "partial",
        )
    return effective


def check_answers(file: ScoreFile, task: str, documents: int) -> None:
    """That the answers in lm-eval's log of samples, where there is one, are answers.

    Raises:
        NotMeasured: the log can't be read or lacks documents, or too many answers are empty or end
            while still thinking, so that the score measures the token budget.
    """
    path = samples_path(file.path, task)
    if path is None:
        return
    answers = dict(_answers(path))
    if len(answers) != documents:
        raise NotMeasured(f"{path.name} has {len(answers)} of {documents} documents", "partial")
    empty = sum(not text.strip() for text in answers.values())
    endless = sum("<think>" in text and "</think>" not in text for text in answers.values())
    for count, what, reason in (
        (empty, "empty", "empty_answers"),
        (endless, "cut off while thinking", "truncated_answers"),
    ):
        if not count <= MAX_UNUSABLE_SHARE * documents:
            raise NotMeasured(
                f"{count} of {documents} answers are {what} ({count / documents:.0%}), at most "
                f"{MAX_UNUSABLE_SHARE:.0%} may be: raise the task's token budget",
                reason,
            )


def samples_path(path: Path, task: str) -> Path | None:
    """The log of samples that belongs to a result file: named after it, with or without task."""
    rest = path.stem.removeprefix("results_")
    names = (f"samples_{task}_{rest}.jsonl", f"samples_{rest}.jsonl")
    return next((p for name in names if (p := path.with_name(name)).is_file()), None)


def _answers(path: Path) -> Iterator[tuple[Any, str]]:
    """(document, answer) of each line; every filter of lm-eval repeats the same answer."""
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                row = records.parse_json(line)
                yield row["doc_id"], str(row["resps"][0][0] or "")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise NotMeasured(f"{path.name} can't be read ({error})", "unreadable") from error


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
