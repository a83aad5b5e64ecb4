"""Stand-in for the measuring clients, the gate and the report: log the argv, do as told.

FAKE_CLIENTS is a JSON object: client → {"status": n, "linger_s": s, "requests": n, "print": text,
"until": file that it waits for}; "lm_eval_run@8" is lm_eval_run at concurrency 8. Results are
written as the real clients do. The gate, unless told, joins plan and results.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from utils import errors, records


def option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def generate(base_url: str) -> None:
    request = urllib.request.Request(f"{base_url}/v1/chat/completions", data=b"{}")
    with urllib.request.urlopen(request, timeout=5) as response:
        response.read()


def write_result(name: str, argv: list[str]) -> None:
    if name == "lm_eval_run":
        concurrency = option(argv, "--concurrency")
        plan = json.loads(Path(option(argv, "--plan")).read_text())
        for cell in plan["cells"]:
            if cell["kind"] == "score" and cell["concurrency"] == int(concurrency):
                file = f"results_{cell['task']}_conc{concurrency}.json"
                records.write_json(Path(option(argv, "--result-dir")) / file, {})
    elif name == "bench":
        records.write_json(Path(option(argv, "--output")), {})
    elif name == "speedbench_al":
        records.write_json(Path(option(argv, "--output-dir")) / "results_speedbench_al.json", {})


def judge(results: Path) -> int:
    cells = json.loads((results / "plan.json").read_text())["cells"]
    wanted = [
        f"results_{c['task']}_conc{c['concurrency']}.json" for c in cells if c["kind"] == "score"
    ]
    absent = [name for name in wanted if not (results / name).exists()]
    print(f"gate: {len(wanted) - len(absent)} of {len(wanted)} results, absent {absent}")
    return 3 if absent else 0


def main(argv: list[str]) -> int:
    name = (argv[1] if argv[0] == "-m" else Path(argv[0]).stem).rpartition(".")[2]
    told: dict[str, Any] = json.loads(os.environ.get("FAKE_CLIENTS", "{}"))
    mode = told.get(name, {})
    if "--concurrency" in argv:
        mode = told.get(f"{name}@{option(argv, '--concurrency')}", mode)
    with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
        keys = ("PYTHONPATH", "no_proxy")
        environment = {key: os.environ.get(key) for key in keys}
        print(json.dumps({"client": name, "argv": argv, "env": environment}), file=log)
    if mode.get("linger_s"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the worst client there is
        time.sleep(mode["linger_s"])
    while "until" in mode and not Path(mode["until"]).exists():
        time.sleep(0.02)
    try:
        for _ in range(mode.get("requests", 1 if "--base-url" in argv else 0)):
            generate(option(argv, "--base-url"))
    except (OSError, urllib.error.URLError) as error:
        print(f"fake {name}: {error}", file=sys.stderr)
        return 3
    if "print" in mode:
        print(mode["print"])
    if "status" in mode:
        return int(mode["status"])
    write_result(name, argv)
    return judge(Path(option(argv, "--results-dir"))) if name == "validate_scores" else 0


if __name__ == "__main__":
    raise SystemExit(errors.run(lambda: main(sys.argv[1:])))
