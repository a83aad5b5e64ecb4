"""What ran: every fact that a reader needs to run it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from utils import records
from utils.errors import NotMeasured
from utils.records import Json

Fact = tuple[str, str]
SERVER_COMMAND = "server_command.json"
OF_THE_RUN = (
    *("run_id", "started", "commit", "dirty", "recipe", "model", "model_path", "precision"),
    *("hw", "engine", "spec_decoding", "num_speculative_tokens", "draft_model"),
    *("draft_sample_method", "rejection_sample_method", "synthetic_acceptance", "topology"),
)
OF_THE_WORKLOAD = (
    *("dataset", "dataset_revision", "prompts", "prompts_sha256", "payload_sha256", "turns"),
    *("endpoint", "sampling", "chat_template_kwargs", "concurrency"),
)


def facts(folder: Path, about: Json, al: Sequence[Json]) -> list[Fact]:
    """Name and value; what several records say alike is said once."""
    found = [(name, text(about[name])) for name in OF_THE_RUN if about.get(name) is not None]
    for record in al:
        found += _of_record(record)
    found += _command(folder)
    return list(dict.fromkeys(found))


def _of_record(record: Json) -> Iterator[Fact]:
    server, workload = record.get("server", {}), record.get("workload", {})
    for name in ("engine_version", "image"):
        if server.get(name) is not None:
            yield name, text(server[name])
    for name in OF_THE_WORKLOAD:
        if workload.get(name) not in (None, {}):
            yield f"AL {name}", text(workload[name])


def _command(folder: Path) -> Iterator[Fact]:
    try:
        command = records.read_json(folder / SERVER_COMMAND, "server_command")
    except NotMeasured:
        return
    for name in ("engine_version", "image"):
        if command.get(name) is not None:
            yield name, command[name]
    env = [f"{name}={shlex.quote(value)}" for name, value in sorted(command["env"].items())]
    yield "server command", " ".join([*env, shlex.join(command["argv"])])
    if command["ready_s"] is not None:
        yield "ready after", f"{command['ready_s']:.1f} s"


def text(value: object) -> str:
    """A fact as people read it, and as it is compared: whatever order it was written in."""
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
