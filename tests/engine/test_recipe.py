"""The main job on the real engine: a recipe from launch to verdict, and what breaks it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.engine.launched import Finished, launch, processes_that_name
from tests.engine.server import ROOT, Embedded, free_port
from utils import records

GOLDEN = ROOT / "benchmarks" / "golden_al"
VALIDATOR = ROOT / "utils" / "evals" / "validate_scores.py"


def gate(results: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, VALIDATOR, *arguments],
        cwd=results,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def results(twin: Finished, tmp_path: Path) -> Path:
    """A copy to break."""
    copy = tmp_path / "results"
    shutil.copytree(twin.results, copy)
    return copy


def test_recipe_ends_with_a_verdict_on_every_cell(twin: Finished) -> None:
    passed = [line for line in twin.output.splitlines() if line.startswith("PASS ")]
    cells = [line.removeprefix("PASS").split(":")[0].strip() for line in passed]
    assert cells[-3:] == ["arithmetic conc=4", "AL off N=3", "serving isl=128 osl=64 conc=4"]
    assert records.read_json(twin.results / "meta_env.json")["conc"] == 4
    record = records.read_json(twin.results / "results_speedbench_al_off_mtp3.json")
    assert record["workload"]["proxy"] is True
    assert record["run"]["run_id"] == records.read_json(twin.results / "plan.json")["run_id"]
    assert "## PASS" in (twin.results / "summary.md").read_text()


def test_yesterdays_results_are_stale(results: Path) -> None:
    plan = records.read_json(results / "plan.json")
    plan["started"] = records.format_time(records.parse_time(plan["started"]) + 86_400)
    records.write_json(results / "plan.json", plan, "plan")
    status, output = gate(results)
    assert status == 3
    assert output.count("stale") >= 3


def test_a_golden_ten_percent_away_is_red(results: Path, tmp_path: Path) -> None:
    goldens = tmp_path / "golden_al"
    shutil.copytree(GOLDEN, goldens)
    path = goldens / "smollm2_ngram.yaml"
    golden = records.read_yaml(path, "golden")
    for run in golden["entries"][0]["runs"]:
        grown = 1.1 * (run["steps"] + run["accepted"]) - run["steps"]
        run.update(accepted=round(grown), per_position=[run["steps"], 0, 0])
        run["per_position"][1] = min(run["steps"], round(grown) - run["steps"])
        run["per_position"][2] = round(grown) - sum(run["per_position"])
        del run["rows"]
    path.write_text(json.dumps(golden))
    status, output = gate(results, "--golden", str(goldens))
    assert status == 1, output
    assert "below_golden" in output


def test_unreadable_thresholds_are_a_usage_error(results: Path, tmp_path: Path) -> None:
    broken = tmp_path / "thresholds.yaml"
    broken.write_text("tasks: [")
    assert gate(results, "--thresholds", str(broken))[0] == 2


def test_a_missing_al_record_is_not_measured(results: Path) -> None:
    (results / "results_speedbench_al_off_mtp3.json").unlink()
    status, output = gate(results)
    assert status == 3
    assert "missing" in output


def test_engine_killed_at_half_the_eval(engine: Embedded, prompts: Path, tmp_path: Path) -> None:
    results, port = tmp_path / "results", free_port()
    run = launch("smollm2_bf16_cpu_vllm", results, prompts, PORT=str(port), EVAL_ONLY="true")
    log = results / "lm_eval_arithmetic_conc4.log"
    while run.poll() is None:
        done = re.findall(r"(\d+)/48", log.read_text()) if log.exists() else []
        if done and 12 <= int(done[-1]) < 48:
            break
        time.sleep(0.05)
    (server,) = [
        int(line.split()[0])
        for line in subprocess.run(
            ["pgrep", "-f", f"vllm serve .*--port {port}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        if Path(f"/proc/{line.split()[0]}/exe").resolve().name.startswith("python")
        and b"supervise.py" not in Path(f"/proc/{line.split()[0]}/cmdline").read_bytes()
    ]
    os.kill(server, signal.SIGKILL)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 3, output
    assert "the server ended with status 137 during lm_eval" in output
    assert "arithmetic conc=4" in output
    assert (results / "meta_env.json").exists()
    assert processes_that_name(str(port)) == []


def test_port_taken_by_another_server(engine: Embedded, prompts: Path, tmp_path: Path) -> None:
    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        port = str(other.server_address[1])
        run = launch("smollm2_bf16_cpu_vllm_mtp", tmp_path / "results", prompts, PORT=port)
        output, _ = run.communicate(timeout=30)
        other.shutdown()
    assert run.returncode == 2
    assert port in output
    assert str(os.getpid()) in output
