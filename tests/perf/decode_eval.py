"""What decode eval costs a training: the export, the steps beside an eval, and its own overhead."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from tests.engine.server import find_engine
from tests.perf.measure import ROOT, Line

TRAINER = Path(__file__).with_name("decode_trainer.py")


def run() -> list[Line]:
    engine = find_engine()
    export = _trainer(engine.python, "export")
    with tempfile.TemporaryDirectory() as folder:
        found = _trainer(engine.python, "training", folder, str(engine.model_path))
    return [
        Line("export, over safetensors' save", export["ours"], export["peer"], "s", 1.2, True),
        Line("step beside an eval", found["beside_s"], found["alone_s"], "s", 1.01, True),
        Line(
            "launch to result, over boot and tokens",
            found["launch_to_result_s"],
            found["boot_and_tokens_s"],
            "s",
            1.1,
            True,
        ),
    ]


def _trainer(python: Path, *words: str) -> dict[str, float]:
    done = subprocess.run(
        [python, TRAINER, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
