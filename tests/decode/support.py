"""A training that needs no torch: a config for the fake engine, an export, and who is alive."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

from tests.waiting import until as until
from utils import processes
from utils.decode_eval import DecodeEvalConfig, lease, resolve_decode_eval_config, weights
from utils.decode_eval.snapshot import Snapshot
from utils.serving import supervise

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
    return Snapshot.of(write_weights(folder / "model" / "consolidated", model), len(model), 0.0)


def write_weights(folder: Path, raw: bytes) -> Path:
    """A folder as an engine takes it, with one tensor of these bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    tensor = {"dtype": "U8", "shape": [len(raw)], "data_offsets": [0, len(raw)]}
    header = json.dumps({"w": tensor}).encode()
    (folder / weights.FILE).write_bytes(struct.pack("<Q", len(header)) + header + raw)
    (folder / weights.CONFIG).write_text('{"architectures": ["Tiny"]}')
    return folder


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
        if processes.parent(pid) == held.holder.pid and "worker.py" in processes.command(pid)
    )


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}
