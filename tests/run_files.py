"""The files with which a run of a recipe begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from utils import records
from utils.records import Json

PLANNED = Path(__file__).parent / "result_dirs" / "pass" / "planned_run"


def plan(**changes: Any) -> Json:
    return {**records.read_json(PLANNED / "plan.json"), **changes}


def server_command(**changes: Any) -> Json:
    return {
        **{"schema": "server_command/1", "argv": ["vllm", "serve", "m"], "env": {}, "unset": []},
        **{"engine_python": None, "started": "2026-12-01T10:00:00Z", "ready_s": 60.0},
        **changes,
    }
