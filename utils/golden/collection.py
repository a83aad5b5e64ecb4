"""AL records → a golden file: runs with their counts, never a derived number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils import models, records
from utils.errors import UsageError
from utils.evals import al_record
from utils.golden import cells, match, registry
from utils.golden.registry import DRAFTER
from utils.records import Json

FAMILY = ("model", "model_prefix", "model_revision", *DRAFTER, "imported")


@dataclass(frozen=True)
class Origin:
    """What records don't say of themselves. model_revision: None where only a record may know."""

    hardware: str
    source: str | None = None
    model_revision: str | None = None


def assemble(paths: Sequence[Path], output: Path, origin: Origin) -> str:
    """Add the runs of records to a golden file, or make one; returns a line about each value.

    Raises:
        NotMeasured: a record is not a valid measurement, or was made with prefix caching on.
        UsageError: a record is of another key family, or of a run that is there already.
    """
    data = records.read_yaml(output, "golden") if output.exists() else None
    for path in paths:
        record = al_record.read(path)
        family = _family(path, record, origin)
        data = data or family
        if differs := [name for name in FAMILY if data[name] != family[name]]:
            has = ", ".join(f"{name} {family[name]}, not {data[name]}" for name in differs)
            raise UsageError(f"{path} does not belong into {output}: it has {has}")
        _add(data, path, record, origin.hardware)
    assert data
    data["entries"].sort(key=lambda e: (e["thinking"], e["num_speculative_tokens"]))
    _write(output, data)
    goldens = list(registry.read(output))
    return "\n".join(
        f"{g}: AL {g.acceptance_length:.4f}, runs {len(g.run_lengths)}" for g in goldens
    )


def _family(path: Path, record: Json, origin: Origin) -> Json:
    if record[al_record.VERSION_KEY] != al_record.VERSION:
        raise UsageError(
            f"{path} is of version 1: it says too little to become a golden; measure again"
        )
    if "early" in record:
        raise UsageError(
            f"{path} was free to stop early: its requests are in another order, and may not be "
            "all; measure without --stop-early"
        )
    spoken = record["speculation"]
    if spoken["method"] is None:
        raise UsageError(f"{path} names no speculative method; measure with --spec-method")
    prefix = record["model_prefix"]
    return {
        "schema": "golden/1",
        "model": _model(record),
        "model_prefix": prefix,
        "model_revision": origin.model_revision or match.revision(record["server"]["argv"]),
        **match.drafter(spoken),
        "imported": False,
        "source": origin.source or "python3 -m utils.golden assemble",
        "entries": [],
    }


def _model(record: Json) -> str:
    """The served name; the model's own where a folder of weights was served under its path."""
    name: str = record["model"]
    return models.load(record["model_prefix"]).id if name.startswith("/") else name


def _add(data: Json, path: Path, record: Json, hardware: str) -> None:
    workload = _workload(record)
    mode, n = record["thinking_mode"], record["num_speculative_tokens"]
    run = _run(path, record, hardware)
    for entry in data["entries"]:
        if (entry["thinking"], entry["num_speculative_tokens"]) != (mode, n):
            continue
        if entry["workload"] != workload:
            continue
        if any(_same_run(run, other) for other in entry["runs"]):
            name = run["run_id"] or run["date"]
            raise UsageError(f"{path} is of run {name}, which is there; leave it out")
        entry["runs"].append(run)
        return
    entry = {"thinking": mode, "num_speculative_tokens": n, "workload": workload, "runs": [run]}
    data["entries"].append(entry)


def _same_run(run: Json, other: Json) -> bool:
    same_id = run["run_id"] is not None and run["run_id"] == other["run_id"]
    return same_id or bool(run["date"] == other["date"])


def _workload(record: Json) -> Json:
    sent = record["workload"]
    names = ("dataset", "dataset_revision", "prompts_sha256", "turns", "endpoint", "prompts")
    return {
        **{name: sent[name] for name in names},
        "category": record["category"],
        "output_len": record["output_len"],
        "sampling": sent["sampling"],
        "chat_template_kwargs": sent["chat_template_kwargs"],
    }


def _run(path: Path, record: Json, hardware: str) -> Json:
    found = al_record.figures(record)
    cells.refuse_prefix_caching(record)
    if not found.accepted:
        raise UsageError(f"{path}: nothing was accepted, the drafter is inactive; no golden")
    run: Json = {
        "run_id": record["run"]["run_id"],
        "accepted": found.accepted,
        "steps": found.steps,
        "per_position": list(found.per_position or ()),
        "engine": record["framework"],
        "engine_version": record["server"]["engine_version"],
        "image": record["server"]["image"],
        "hardware": hardware,
        "date": record["run"]["started"],
        "concurrency": record["workload"]["concurrency"],
    }
    # Rows from stream chunks agree with the counters only up to each request's last step.
    if [sum(column) for column in zip(*found.rows, strict=True)] == [found.accepted, found.steps]:
        run["rows"] = _Flow([a, s] for a, s in found.rows)
    return run


class _Flow(list[Any]):
    """A list that is written on as few lines as fit."""


def _write(output: Path, data: Json) -> None:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Indents lists, writes rows in flow style."""

        def increase_indent(self, flow: bool = False, *_: Any, **__: Any) -> None:
            super().increase_indent(flow, False)

    Dumper.add_representer(
        _Flow, lambda dumper, rows: dumper.represent_sequence("tag:yaml.org,2002:seq", rows, True)
    )
    _share_workloads(data["entries"])
    for entry in data["entries"]:
        for run in entry["runs"]:
            if "rows" in run:
                run["rows"] = _Flow(run["rows"])
    text = yaml.dump(data, Dumper=Dumper, sort_keys=False, default_flow_style=None, width=110)
    problems = [records.schema_problem(data, "golden"), *map(registry.impossible, data["entries"])]
    if problem := next(filter(None, problems), None):
        raise UsageError(f"{output} would not be a golden file: {problem}")
    records.write_text(output, text)


def _share_workloads(entries: Sequence[Json]) -> None:
    """Equal workloads become one object, which YAML writes once and refers to."""
    for later, entry in enumerate(entries):
        for earlier in entries[:later]:
            if earlier["workload"] == entry["workload"]:
                entry["workload"] = earlier["workload"]
