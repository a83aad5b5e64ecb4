"""Lines of a history without a server: a point from (accepted, steps) of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from utils.acceptance import estimate
from utils.decode_eval import history, jobs, measuring
from utils.decode_eval.config import DecodeEvalConfig
from utils.records import Json

CONFIG = DecodeEvalConfig(10, "target", "/out", 3, cuda_visible_devices="cpu", input_data="x")
Rows = Sequence[tuple[int, int]]


def one_set(rows: Rows, name: str = "default", requests: str = "a") -> Json:
    accepted, steps = sum(a for a, _ in rows), sum(s for _, s in rows)
    found = estimate.estimate(
        accepted=accepted, steps=steps, drafted=3 * steps, per_position=[accepted], rows=rows
    ).as_json()
    del found["requests_with_steps"]
    return {
        **found,
        "name": name,
        "record": f"al_{name}.json",
        "prompts_sha256": 64 * "0",
        "requests_sha256": 64 * requests,
        "prompts": len(rows),
        "completed": len(rows),
        "accepted_tokens": accepted,
        "verify_steps": steps,
        "per_position": [],
        "conditional": [],
        "output_tokens": accepted + steps,
        "output_tokens_per_s": 100.0,
        "tokens_per_step": 1.0,
        "rows": [list(row) for row in rows],
        "reason": None,
        "error": None,
    }


def measured(step: int, *sets: Json, **changed: Any) -> Json:
    seconds = {"convert": 0.1, "boot": 30.0, "decode": 10.0, "total": 41.0}
    row = {**jobs.blank(CONFIG, step, 1), "outcome": "measured", "sets": list(sets)}
    return {**row, "seconds": seconds, **measuring.pooled(sets), **changed}


def failed(step: int, reason: str = "engine_died", **changed: Any) -> Json:
    return {**jobs.blank(CONFIG, step, 1), "reason": reason, "error": "it died", **changed}


def write(folder: Path, *rows: Json) -> Path:
    path = folder / history.FILE
    history.append(path, rows)
    return path
