"""Result directories for tests of reports: whole jobs with plan, scores, AL record and speed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests import al_records, run_files
from utils.records import Json

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "result_dirs"
PLANNED = CASES / "pass" / "planned_run"
MODEL = "deepseek-ai/DeepSeek-V4-Pro"
# Accepted at each position of 1000 steps: AL 1.79, 2.27, 2.49, 2.54, as dsv4's published curve.
POSITIONS = {
    1: (790,),
    2: (770, 500),
    3: (760, 460, 270),
    4: (750, 440, 230, 120),
}
STARTED = "2026-12-01T10:00:00Z"


def job(
    folder: Path,
    *,
    hw: str = "b200",
    engine: str = "vllm",
    n: int | None = 2,
    concurrencies: Sequence[int] = (1,),
    score: float | None = 0.95,
    positions: Sequence[int] | None = None,
    steps: int = 1000,
    speed: float | None = 1000.0,
    run_id: str | None = None,
    al: bool = True,
    **changes: Any,
) -> Path:
    """One run of dsv4 with MTP (n=None: without), against the goldens and thresholds of here.

    score, speed, al: None or False leaves the result out. changes: of the AL record.
    """
    folder.mkdir(parents=True)
    run_id = run_id or f"20261201T100000Z-{abs(hash(str(folder))) % 16**8:08x}"
    plan = _plan(run_id, hw, engine, n, concurrencies)
    _write(folder / "plan.json", plan)
    for concurrency in concurrencies if score is not None else ():
        _write(folder / f"results_gsm8k_conc{concurrency}.json", _score(score, concurrency))
    if n is not None and al:
        record = al_records.version_2(
            positions or POSITIONS[n],
            steps=steps,
            requests=min(steps, 80),
            model=MODEL,
            framework="vllm",
            run={
                "run_id": run_id,
                "commit": plan["commit"],
                "started": "2026-12-01T10:20:00.000000Z",
            },
            server={"image": "example.org/vllm@sha256:" + "0c" * 32},
        )
        record = al_records.merged(record, changes)
        _write(folder / f"results_speedbench_al_on_mtp{n}.json", record)
    argv = ["vllm", "serve", MODEL, *(["--speculative-config", f"N={n}"] if n else [])]
    _write(folder / "server_command.json", run_files.server_command(argv=argv, started=STARTED))
    if speed is not None:
        _write(folder / "dsv4_serving.json", _serving(run_id, speed, concurrencies[-1]))
    return folder


def goldens(folder: Path) -> Path:
    """A folder of goldens that every job's AL record lies on, unless it is told otherwise."""
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "benchmarks" / "golden_al" / "tolerances.yaml", folder)
    entries = [_golden(n, positions) for n, positions in POSITIONS.items()]
    published = yaml.safe_load((CASES / "golden" / "dsv4_mtp.yaml").read_text())
    (folder / "dsv4_mtp.yaml").write_text(yaml.safe_dump({**published, "entries": entries}))
    return folder


def _golden(n: int, positions: Sequence[int]) -> Json:
    workload = al_records.version_2(positions, requests=80)["workload"]
    names = ("dataset", "dataset_revision", "prompts_sha256", "turns", "endpoint", "prompts")
    run = {
        "run_id": None,
        "accepted": sum(positions),
        "steps": 1000,
        "per_position": list(positions),
        "engine": "vllm",
        "engine_version": "0.32.0",
        "image": None,
        "hardware": "none",
        "date": "2026-11-01T00:00:00Z",
        "concurrency": 1,
    }
    return {
        "thinking": "on",
        "num_speculative_tokens": n,
        "workload": {
            **{name: workload[name] for name in names},
            "category": "coding",
            "output_len": 4096,
            "sampling": workload["sampling"],
            "chat_template_kwargs": workload["chat_template_kwargs"],
        },
        "runs": [run],
    }


def later(folder: Path) -> None:
    """Date a job and its results an hour after the others."""
    for path in folder.glob("*.json"):
        data = json.loads(path.read_text().replace("2026-12-01T10:", "2026-12-01T11:"))
        if "date" in data:
            data["date"] += 3600.0
        _write(path, data)


def sweep(root: Path, jobs: int = 60) -> Path:
    """Many jobs of five cells; now and then one that fails, lacks a result, or is unmeasured."""
    for index in range(jobs):
        n = 1 + index % 4
        share = 0.8 if index % 13 == 5 else 1.0
        plain = index % 5 == 4
        like = index - plain  # every fifth is its neighbour's twin without speculation
        job(
            root / f"job-{index:03}",
            hw=("b200", "b300", "h200")[like // 4 % 3],
            engine="vllm",
            n=None if plain else n,
            concurrencies=(1, 4 + like, 200 + like),
            score=None if index % 17 == 7 else (0.5 if index % 19 == 8 else 0.95),
            positions=[int(share * count) for count in POSITIONS[n]],
            speed=900.0 + 13 * index,
            run_id=f"20261201T100000Z-{index:08x}",
            al=index % 11 != 3,
        )
    return root


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data))


def _plan(run_id: str, hw: str, engine: str, n: int | None, concurrencies: Sequence[int]) -> Json:
    cells: list[Json] = [
        {"kind": "score", "task": "gsm8k", "concurrency": concurrency}
        for concurrency in concurrencies
    ]
    if n is not None:
        cells.append({"kind": "al", "thinking": "on", "num_speculative_tokens": n})
    cells.append({"kind": "throughput", "isl": 256, "osl": 64, "concurrency": concurrencies[-1]})
    twin = "" if n is None else "_mtp"
    return {
        **json.loads((PLANNED / "plan.json").read_text()),
        "run_id": run_id,
        "cells": cells,
        "hw": hw,
        "engine": engine,
        "model": MODEL,
        "model_path": MODEL,
        "model_prefix": "dsv4",
        "precision": "fp4",
        "recipe": f"benchmarks/single_node/dsv4_fp4_{hw}_{engine}{twin}.sh",
        "spec_decoding": "none" if n is None else "mtp",
        "num_speculative_tokens": n,
        "started": STARTED,
    }


def _score(score: float, concurrency: int) -> Json:
    data = json.loads(
        (PLANNED / "results_arithmetic_conc8.json").read_text().replace("arithmetic", "gsm8k")
    )
    data["config"]["model_args"].update(num_concurrent=concurrency, model=MODEL)
    data["n-samples"] = {"gsm8k": {"original": 1319, "effective": 1319}}
    row = data["results"]["gsm8k"]
    row.update({"exact_match,strict-match": score, "exact_match,flexible-extract": score})
    return dict(data)


def _serving(run_id: str, speed: float, concurrency: int) -> Json:
    data = json.loads((PLANNED / "smollm2_serving.json").read_text())
    return {
        **data,
        "run_id": run_id,
        "model": MODEL,
        "model_prefix": "dsv4",
        "concurrency": concurrency,
        "output_tokens_per_s": speed,
        "duration_s": data["total_output_tokens"] / speed,
    }


HOSTILE = "</script><script>document.title='forged'</script><img src=x onerror=alert(1)>"


def hostile(folder: Path) -> Path:
    """A job whose server and file names say what a page must not obey."""
    job(folder)
    file = folder / "dsv4_serving.json"
    changes = {"completed": 0, "failed": 40, "first_error": HOSTILE, "total_output_tokens": 0}
    _write(file, {**json.loads(file.read_text()), **changes})
    _write(folder / (HOSTILE.replace("/", "-") + ".json"), {})
    return folder


# What a report is shown on, by name.
RUNS: dict[str, Callable[[Path], Any]] = {
    "green": job,
    "red": lambda folder: job(folder, positions=(500, 300), score=0.5),
    "missing": lambda folder: job(folder, al=False, score=None),
    # A twentieth of the golden's steps.
    "inconclusive": lambda folder: job(folder, positions=(38, 25), steps=50),
    "nothing": Path.mkdir,
    "hostile": hostile,
    "few": lambda folder: sweep(folder, 9),
    "sweep": sweep,
}
