"""Golden acceptance lengths: one file per way of speculating, read whole and checked on reading."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import UsageError
from utils.records import Json

FOLDER = Path(__file__).parents[2] / "benchmarks" / "golden_al"
TOLERANCES = "tolerances.yaml"
ENGINE_DEFAULT = "default"
NO_DRAFT_MODEL = "none"
DRAFTER = ("method", "draft_model", "draft_sample_method", "rejection_sample_method")


@dataclass(frozen=True)
class Golden:
    """One reference value.

    key: field → value; None where the file doesn't state it. run_lengths: AL of each run, empty
    for an imported value. steps: verify steps of a run, on average; None for an imported value.
    rows: (accepted, steps) of every request, of each run that has them, in the prompts' order.
    profile: share of steps whose draft was accepted at position 1, 2, …; empty where no run says.
    revision: of the weights, None where the file doesn't state it.
    """

    file: str
    key: Mapping[str, Any]
    prefix: str
    imported: bool
    source: str
    acceptance_length: float
    run_lengths: tuple[float, ...]
    steps: float | None = None
    rows: tuple[tuple[tuple[int, int], ...], ...] = ()
    profile: tuple[float, ...] = ()
    revision: str | None = None

    @property
    def identity(self) -> str:
        """Key and revision as text, whatever order a file gave them in."""
        return json.dumps({**self.key, "model_revision": self.revision}, sort_keys=True)

    @property
    def n(self) -> int:
        """Draft length N, tokens."""
        return int(self.key["num_speculative_tokens"])

    @property
    def thinking(self) -> str:
        return str(self.key["thinking"])

    @property
    def curve(self) -> tuple[str, str]:
        """Equal for goldens that differ in N alone."""
        shared = {name: v for name, v in self.key.items() if name != "num_speculative_tokens"}
        return self.file, json.dumps(shared, sort_keys=True)

    def __str__(self) -> str:
        return f"golden_al/{self.file} {self.thinking} N={self.n}"


@dataclass(frozen=True)
class Registry:
    """Every golden of a folder, and how far a measurement may lie from one."""

    goldens: Sequence[Golden]
    tolerances: Json


def load(folder: Path) -> Registry:
    """All golden files of a folder and its tolerances.

    Raises:
        UsageError: a file can't be read, breaks its schema, contradicts itself, or gives a key that
            another one gives too.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder of golden files")
    goldens = [golden for path in golden_files(folder) for golden in read(path)]
    seen: dict[str, Golden] = {}
    for golden in goldens:
        same = seen.setdefault(golden.identity, golden)
        if same is not golden:
            raise UsageError(f"{folder}: {same} and {golden} have the same key; merge their runs")
    return Registry(goldens, _tolerances(folder / TOLERANCES))


def _tolerances(path: Path) -> Json:
    data = records.read_yaml(path, "tolerances")
    # Beyond these the limits pass what must not pass, and intervals are inside out.
    for name, below in (("relative_floor", data["must_not_pass"]["value"]), ("error_rate", 0.5)):
        if not data[name]["value"] < below:
            raise UsageError(f"{path}: {name} is {data[name]['value']}, want less than {below}")
    return data


def golden_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.yaml") if path.name != TOLERANCES)


def read(path: Path) -> Iterator[Golden]:
    """The goldens of one file.

    Raises:
        UsageError: as load().
    """
    data = records.read_yaml(path, "golden")
    for entry in data["entries"]:
        if problem := impossible(entry):
            where = f"{entry['thinking']} N={entry['num_speculative_tokens']}"
            raise UsageError(f"{path}: {where}: {problem}")
        runs = entry.get("runs", [])
        yield Golden(
            file=path.name,
            key=key_of(data, entry),
            prefix=data["model_prefix"],
            imported=data["imported"],
            source=data["source"],
            acceptance_length=entry["acceptance_length"] if data["imported"] else pooled(runs),
            run_lengths=tuple(pooled([run]) for run in runs),
            steps=sum(run["steps"] for run in runs) / len(runs) if runs else None,
            rows=tuple(tuple((a, s) for a, s in run["rows"]) for run in runs if "rows" in run),
            profile=_profile(runs),
            revision=data["model_revision"],
        )


def key_of(data: Json, entry: Json) -> dict[str, Any]:
    """What identifies a golden, flat: sampling fields become sampling.<name>."""
    workload = entry["workload"]
    return {
        **{name: data[name] for name in ("model", *DRAFTER)},
        "thinking": entry["thinking"],
        "num_speculative_tokens": entry["num_speculative_tokens"],
        **flat_workload(workload),
    }


def flat_workload(workload: Mapping[str, Any]) -> dict[str, Any]:
    flat = {name: value for name, value in workload.items() if name != "sampling"}
    return {**flat, **{f"sampling.{name}": v for name, v in workload["sampling"].items()}}


def pooled(runs: Sequence[Json]) -> float:
    """AL over all steps of all runs."""
    accepted: int = sum(run["accepted"] for run in runs)
    steps: int = sum(run["steps"] for run in runs)
    return 1.0 + accepted / steps


def _profile(runs: Sequence[Json]) -> tuple[float, ...]:
    """Acceptance by position, pooled over the runs that say it."""
    known = [run for run in runs if run["per_position"]]
    steps = sum(run["steps"] for run in known)
    columns = zip_longest(*(run["per_position"] for run in known), fillvalue=0)
    return tuple(sum(column) / steps for column in columns)


def impossible(entry: Json) -> str | None:
    """Why an entry can't be true, or None."""
    most = entry["num_speculative_tokens"]
    if not entry.get("acceptance_length", 1) <= most + 1:
        return f"acceptance_length {entry['acceptance_length']} is impossible, N+1 is {most + 1}"
    for run in entry.get("runs", []):
        accepted, steps, positions = run["accepted"], run["steps"], run["per_position"]
        if not accepted <= most * steps:
            return f"{accepted} accepted in {steps} steps is more than N a step"
        if positions and sum(positions) != accepted:
            return f"{accepted} accepted, but {sum(positions)} over positions"
        if len(positions) > most:
            return f"per_position has {len(positions)} positions, N is {most}"
        if [steps, *positions] != sorted([steps, *positions], reverse=True):
            return f"{positions} accepted in {steps} steps rises by position"
        totals = [sum(column) for column in zip(*run["rows"], strict=True)] if "rows" in run else []
        if totals not in ([], [accepted, steps]):
            return f"its rows come to {totals}, its totals are {[accepted, steps]}"
    return None
