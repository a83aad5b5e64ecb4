"""lm-eval's own result files: what they are, and whether a score in one can be believed."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, TypeGuard

from utils import records
from utils.errors import NotMeasured
from utils.records import Json

MARKS = ("lm_eval_version", "config", "configs", "n-samples")
CONC_IN_NAME = re.compile(r"_conc(\d+)(?=[._]|$)")
NOT_AVAILABLE = "N/A"  # lm-eval's word for what it didn't compute
YEAR_10000 = 253_402_300_800  # in unix seconds
CONC_IN_ARGS = re.compile(r"(?:^|,)\s*num_concurrent=(\d+)\s*(?:,|$)")


@dataclass(slots=True)  # not frozen: that doubles the cost of making one
class ScoreFile:
    """What is needed of one file of lm-eval; thousands of them are held at a time.

    concurrency: requests in flight. started: unix seconds, if written. model: the served name that
    lm-eval was given. counts: documents by task. protocol: how a task was put, by its name.
    """

    name: str
    results: Json
    concurrency: int
    started: float | None
    model: Any
    limit: Any
    counts: Any
    protocol: Json

    @property
    def tasks(self) -> list[str]:
        return list(self.protocol)


def is_score_file(data: Any) -> bool:
    """Recognised by content; a file's name decides nothing."""
    return isinstance(data, dict) and "results" in data and any(mark in data for mark in MARKS)


def read(name: str, data: Json) -> ScoreFile:
    """What was read from a file of that name, as a file of lm-eval.

    Raises:
        NotMeasured: it has another shape, or its concurrency is unknown or contradictory.
    """
    results = data["results"]
    if not (isinstance(results, dict) and results):
        raise NotMeasured(
            "`results` holds no task: lm-eval was cut off, run it again", "wrong_shape"
        )
    if broken := [task for task, row in results.items() if not isinstance(row, dict)]:
        raise NotMeasured(
            f"`results` of {broken[0]} is not an object: not a file of lm-eval", "wrong_shape"
        )
    config, groups = _object(data.get("config")), _object(data.get("groups"))
    return ScoreFile(
        name=name,
        results=results,
        concurrency=_concurrency(name, config),
        started=_moment(data.get("date")),
        model=_model_arg(config, "model"),
        limit=config.get("limit"),
        counts=data.get("n-samples"),
        # Rows of groups only sum up those of tasks.
        protocol={task: _protocol(data, config, task) for task in results if task not in groups},
    )


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _moment(date: Any) -> float | None:
    """Unix seconds, of a year that can be written down."""
    return float(date) if _is_number(date) and 0 <= date < YEAR_10000 else None


def _protocol(data: Json, config: Json, task: str) -> tuple[Any, ...]:
    """What must be equal for two scores of a task to be comparable."""
    return (
        config.get("gen_kwargs"),
        _object(_object(data.get("configs")).get(task)).get("generation_kwargs"),
        _object(data.get("n-shot")).get(task),
        _object(data.get("task_hashes")).get(task),
        data.get("chat_template_sha"),
        data.get("system_instruction_sha"),
    )


PROTOCOL = (
    *("gen_kwargs", "generation_kwargs", "n-shot"),
    *("task_hash", "chat_template_sha", "system_instruction_sha"),
)


def protocol_difference(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    """In what two protocols differ, for people."""
    return "; ".join(
        f"{name} {mine}, not {theirs}"
        for name, mine, theirs in zip(PROTOCOL, one, other, strict=True)
        if mine != theirs
    )


def _concurrency(name: str, config: Json) -> int:
    """By lm-eval's own arguments; the name must agree, and decides where they say nothing."""
    inside = _model_arg(config, "num_concurrent")
    inside = records.whole(str(inside))
    named = CONC_IN_NAME.search(name.rpartition("/")[2].removesuffix(".json"))
    outside = records.whole(named.group(1)) if named else None
    if inside is not None and outside is not None and inside != outside:
        raise NotMeasured(
            f"it was measured with num_concurrent={inside}, its name says conc{outside}: "
            "find out which, and rename or measure again",
            "concurrency_mismatch",
        )
    found = outside if inside is None else inside
    if not found:
        raise NotMeasured(
            "neither config.model_args.num_concurrent nor a name with _conc<N> tells its "
            "concurrency; rename it",
            "unknown_concurrency",
        )
    return found


def _model_arg(config: Json, name: str) -> Any:
    """One of lm-eval's model arguments, which older versions write as one string."""
    args = config.get("model_args")
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
        raise NotMeasured(
            f"no metric {metric!r}; metrics there: {has}; thresholds.yaml names the one to judge",
            "missing_metric",
        )
    value = row[metric]
    if not _is_number(value):
        raise NotMeasured(f"{metric} is {value!r}, not a number: fix its writer", "wrong_shape")
    if not 0.0 <= value <= 1.0:
        raise NotMeasured(
            f"{metric} is {value}; a score lies in 0..1: not lm-eval's own figure, or a percentage",
            "impossible",
        )
    return float(value)


def other_extractions(file: ScoreFile, task: str, metric: str) -> dict[str, float]:
    """The same answers' scores under lm-eval's other filters.

    Raises:
        NotMeasured: as score(); whoever wrote one of them wrongly wrote them all.
    """
    name = metric.partition(",")[0] + ","
    return {
        key[len(name) :]: score(file, task, key)
        for key in file.results[task]
        if key.startswith(name) and key != metric and file.results[task][key] != NOT_AVAILABLE
    }


def check_samples(file: ScoreFile, task: str, whole: int | None) -> int:
    """That all documents of the task were evaluated; returns how many.

    Raises:
        NotMeasured: counts are missing, or a part was left out, by a limit or otherwise.
    """
    counts = _object(_object(file.counts).get(task))
    original, effective = counts.get("original"), counts.get("effective")
    if not (_is_count(original) and _is_count(effective)):
        raise NotMeasured(
            f"`n-samples` does not say how many documents of {task} were evaluated; "
            "run it with lm-eval 0.4.3 or later",
            "no_counts",
        )
    wanted = original if whole is None else whole
    if effective != wanted or original != wanted or file.limit is not None:
        declared = f", limit {file.limit}" if file.limit is not None else ""
        raise NotMeasured(
            f"{effective} of {wanted} documents were evaluated{declared}; run the whole task",
            "partial",
        )
    return effective


def samples_log(name: str, task: str, logs: Container[str]) -> str | None:
    """The log of samples that belongs to a result: named after it, with or without task."""
    folder, slash, base = name.rpartition("/")
    rest = base.removesuffix(".json").removeprefix("results_")
    for log in (f"samples_{task}_{rest}.jsonl", f"samples_{rest}.jsonl"):
        if (path := folder + slash + log) in logs:
            return path
    return None


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) is float or type(value) is int


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and value > 0
