"""benchmarks/models.yaml: what is sent to a model, per thinking mode."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import UsageError

MODELS_FILE = Path(__file__).parents[1] / "benchmarks" / "models.yaml"
PROMPTS_DIR = Path("/tmp/speed_bench_data")


@dataclass(frozen=True)
class PromptSet:
    """A frozen list of prompts and how it is sent; output_len in tokens."""

    name: str
    config: str
    category: str
    prompts: int
    output_len: int
    concurrency: int


@dataclass(frozen=True)
class Mode:
    """What one thinking mode sends."""

    sampling: Mapping[str, float]
    chat_template_kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Model:
    """One row of models.yaml."""

    prefix: str
    id: str
    endpoint: str
    golden_thinking: str
    prompt_set: PromptSet
    eval_tasks: tuple[str, ...]
    thinking: Mapping[str, Mode]
    ids: Mapping[str, str]
    reasoning_parser: Mapping[str, str]

    def checkpoint(self, precision: str) -> str:
        """Hugging Face id of the weights in a precision."""
        return self.ids.get(precision, self.id)

    def mode(self, thinking: str) -> Mode:
        """What to send for a thinking mode.

        Raises:
            UsageError: the model has no such mode.
        """
        if thinking not in self.thinking:
            known = ", ".join(self.thinking)
            raise UsageError(f"{self.prefix} has no thinking mode {thinking!r}; it has {known}")
        return self.thinking[thinking]


def load(prefix: str, path: Path = MODELS_FILE) -> Model:
    """The row of one model prefix.

    Raises:
        UsageError: unreadable file, unknown prefix or prompt set.
    """
    data = _file(path, path.stat().st_mtime_ns if path.exists() else 0)
    row = _pick(data["models"], prefix, "model prefix", path)
    name = row["prompt_set"]
    return Model(
        prefix=prefix,
        id=row["id"],
        endpoint=row["endpoint"],
        golden_thinking=row["golden_thinking"],
        prompt_set=PromptSet(name, **_pick(data["prompt_sets"], name, "prompt set", path)),
        eval_tasks=tuple(row["eval_tasks"]),
        thinking={mode: Mode(**value) for mode, value in row["thinking"].items()},
        ids=row.get("ids", {}),
        reasoning_parser=row.get("reasoning_parser", {}),
    )


def collection(name: str, path: Path = MODELS_FILE) -> dict[str, Any]:
    """One row of `collections`, as it is written (see utils/golden/rows.py).

    Raises:
        UsageError: unreadable file or unknown collection.
    """
    table = records.read_yaml(path, "models").get("collections", {})
    return dict(_pick(table, name, "collection", path))


def prompts_dir() -> Path:
    """Where prepared prompt sets are looked for, unless a command names another folder."""
    return Path(os.environ.get("SPEEDBENCH_DIR") or PROMPTS_DIR)


@cache  # lint looks at a hundred recipes
def _file(path: Path, _changed_ns: int) -> records.Json:
    return records.read_yaml(path, "models")


def _pick(table: Mapping[str, Any], name: str, what: str, path: Path) -> Any:
    if name not in table:
        raise UsageError(f"{path} has no {what} {name!r}; {near(name, table)}")
    return table[name]


def near(name: str, known: Iterable[str]) -> str:
    """The remedy for a name that isn't known: the nearest ones, else all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
