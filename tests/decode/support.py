"""A training that needs no torch: a config for the fake engine, an export, and who is alive."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from utils.decode_eval import DecodeEvalConfig, lease, resolve_decode_eval_config
from utils.decode_eval.snapshot import Snapshot
from utils.serving import listeners, supervise

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "tests" / "fakes" / "decode_engine.py"
MARK = "SPECGATE_DECODE_TEST"


def write_prompts(folder: Path, count: int = 12) -> Path:
    path = folder / "prompts.jsonl"
    rows = [{"messages": [{"role": "user", "content": f"Question {i}?"}]} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def block(folder: Path, modes: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A decode_eval block; modes: failures of the engine."""
    return {
        "every_steps": 10,
        "cuda_visible_devices": "cpu",
        "target_model": "target",
        "output_dir": str(folder / "decode_eval"),
        "num_speculative_tokens": 3,
        "input_data": str(write_prompts(folder)),
        "num_prompts": 6,
        "concurrency": 3,
        "max_new_tokens": 40,
        "method": "eagle3",
        "command": [
            *(sys.executable, str(ENGINE), "--port", "{port}", "--name", "{name}"),
            *("--draft", "{draft}", "--n", "{n}"),
        ],
        "engine_env": {
            "PYTHONPATH": str(ROOT),
            "FAKE_DECODE": json.dumps(modes or {}),
            MARK: str(folder),
        },
        "timeout_s": 60,
        "stall_s": 20,
        "stop_grace_s": 0.5,
        "finish_wait_s": 60,
        **fields,
    }


def config(folder: Path, modes: dict[str, Any] | None = None, **fields: Any) -> DecodeEvalConfig:
    found = resolve_decode_eval_config(block(folder, modes, **fields))
    assert found
    return found


def export(model: bytes, folder: Path) -> Snapshot:
    """A model is its weights: bytes."""
    out = folder / "model" / "consolidated"
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text("{}")
    (out / "model.safetensors").write_bytes(model)
    return Snapshot(out, hashlib.sha256(model).hexdigest(), len(model), 0.0)


def engines(folder: Path) -> list[int]:
    """Processes of this test's engines, told by their environment."""
    word = f"{MARK}={folder}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if word in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def worker_of(output: Path) -> int:
    """The pid of the worker that holds the lease of an output_dir."""
    held = lease.read(output)
    assert held
    return next(
        pid
        for pid in supervise.descendants(held.holder.pid)
        if listeners.parent(pid) == held.holder.pid and "worker.py" in listeners.command(pid)
    )


def until(condition: Callable[[], object], seconds: float = 20.0, what: str = "") -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what or "it did not happen"
        time.sleep(0.05)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}
