"""thresholds.yaml: the least score of a task for a model, and which row said so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from utils import records
from utils.errors import NotMeasured
from utils.records import Json

FILE = Path(__file__).parents[2] / "benchmarks" / "tasks" / "thresholds.yaml"
STRICT = "exact_match,strict-match"


@dataclass(frozen=True)
class Threshold:
    """What a score must reach. samples: documents of the whole task, None when unknown."""

    metric: str
    samples: int | None
    min_score: float
    source: str


@dataclass(frozen=True)
class Thresholds:
    """Every row. min_score: for tasks and models without one, only when somebody asked for it."""

    name: str
    limits: Mapping[str, float]
    tasks: Json
    min_score: float | None

    def of(self, task: str, prefix: str | None) -> Threshold:
        """The row of a task and model, else the task's default, else --min-score.

        Raises:
            NotMeasured: none of them is there.
        """
        row = self.tasks.get(task, {})
        own = row.get("models", {}).get(prefix)
        found = own or (row.get("default") if prefix else None)
        metric, samples = row.get("metric", STRICT), row.get("samples")
        if found:
            where = f"models.{prefix}" if own else "default"
            source = f"{self.name} {task} {where}, {found['source']}"
            return Threshold(metric, samples, found["min_score"], source)
        if self.min_score is not None:
            return Threshold(metric, samples, self.min_score, "--min-score")
        if row and not prefix:
            raise NotMeasured(
                "nobody says which model this is: give --model-prefix, or a meta_env.json",
                "unknown_model",
            )
        raise NotMeasured(
            f"{self.name} has no row for task {task} and model {prefix}; add one, or give "
            "--min-score",
            "no_threshold",
        )


def load(path: Path, min_score: float | None = None) -> Thresholds:
    """Read the thresholds.

    Raises:
        UsageError: the file can't be read or breaks its schema.
    """
    data = records.read_yaml(path, "thresholds")
    limits = {name: limit["value"] for name, limit in data["limits"].items()}
    return Thresholds(path.name, limits, data["tasks"], min_score)
