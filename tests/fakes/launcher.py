"""Stand-in for a launcher: leaves canned results of what was planned, or does as told.

FAKE_CELLS is a JSON object, CONC → "crash": no results, status 3; "recipe": the real launcher with
a fake engine that loads forever.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CANNED = ROOT / "tests" / "result_dirs" / "pass" / "planned_run"


def canned(name: str, **changes: Any) -> Any:
    return json.loads((CANNED / name).read_text()) | changes


def leave(plan: Any, cell: Any, results: Path) -> None:
    """One result of a cell, of this run and of now."""
    now = datetime.now(timezone.utc)
    times = {"started": f"{now:%FT%T.%fZ}", "finished": f"{now:%FT%T.%fZ}"}
    run = {"run_id": plan["run_id"], **times}
    if cell["kind"] == "al":
        name = f"results_speedbench_al_{cell['thinking']}_mtp{cell['num_speculative_tokens']}.json"
        data = canned(name)
        data["run"] |= {**run, "commit": plan["commit"]}
    elif cell["kind"] == "score":
        name = f"results_{cell['task']}_conc{cell['concurrency']}.json"
        data = canned("results_arithmetic_conc8.json", date=now.timestamp())
        data["config"]["model_args"]["num_concurrent"] = cell["concurrency"]
    else:
        name = f"serving_conc{cell['concurrency']}.json"
        lengths = {key: cell[key] for key in ("isl", "osl", "concurrency")}
        data = canned("smollm2_serving.json", **lengths, **run)
        data["total_input_tokens"] = data["completed"] * cell["isl"]
        data["total_output_tokens"] = data["completed"] * cell["osl"]
        data["output_tokens_per_s"] = data["total_output_tokens"] / data["duration_s"]
    (results / name).write_text(json.dumps(data))


def main() -> int:
    mode = json.loads(os.environ.get("FAKE_CELLS", "{}")).get(os.environ["CONC"], "")
    if mode == "recipe":
        fakes = ROOT / "tests" / "fakes"
        environment = {
            **os.environ,
            "PATH": f"{fakes / 'bin'}:{os.environ['PATH']}",
            "HARNESS_PYTHON": str(fakes / "harness_python"),
            "FAKE_PYTHON": sys.executable,
            "FAKE_LOG": f"{os.environ['RESULT_DIR']}/clients.log",
            "FAKE_VLLM_LOG": f"{os.environ['RESULT_DIR']}/vllm.log",
            "FAKE_ENGINE": json.dumps({"silent": True, "workers": ["stubborn", "daemon"]}),
        }
        os.execvpe("bash", ["bash", "runners/launch_real.sh", *sys.argv[1:]], environment)
    if mode == "crash":
        print("error: the node is gone", file=sys.stderr)
        return 3
    results = Path(os.environ["RESULT_DIR"])
    plan = json.loads(Path(os.environ["PLAN_FILE"]).read_text())
    for cell in plan["cells"]:
        leave(plan, cell, results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
