"""The gate on 1,000 and 10,000 result files of lm-eval, against a loader that only parses them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.perf.measure import ROOT, Cost, Line, installed, paired, python

CASES = ROOT / "tests" / "result_dirs"
REAL = CASES / "pass" / "real_lm_eval_0_4_13"
SMALL, LARGE = 1_000, 10_000
REPEATS = 7


def run() -> list[Line]:
    small, (ours, peer) = _measure(SMALL)[0], _measure(LARGE)
    # Start-up, the same for both sizes, is left out of what must be linear.
    start = _measure(1)[0].cpu_s
    per_file = (ours.cpu_s - start) / LARGE
    per_file_of_few = (small.cpu_s - start) / SMALL
    return [
        Line(f"CPU, {LARGE} files", ours.cpu_s, peer.cpu_s, "s", 1.5, is_ratio=True),
        Line(
            f"CPU a file, {LARGE} files against {SMALL}",
            per_file * 1e6,
            per_file_of_few * 1e6,
            "us",
            1.25,
            is_ratio=True,
        ),
        Line("peak memory", ours.peak_mib, peer.peak_mib, "MiB", 150),
    ]


def _measure(files: int) -> tuple[Cost, Cost]:
    with tempfile.TemporaryDirectory() as folder, installed() as env:
        write(Path(folder), files)
        gate = python(
            str(ROOT / "utils" / "evals" / "validate_scores.py"),
            *("--results-dir", folder, "--thresholds", str(CASES / "thresholds.yaml")),
        )
        peer = python(str(Path(__file__).with_name("load_json.py")), folder)
        return paired(gate, peer, ROOT, env, REPEATS)


def write(folder: Path, files: int) -> None:
    """One real file of lm-eval, once per concurrency, no two with the same numbers."""
    [source] = REAL.glob("*/results_*.json")
    data = json.loads(source.read_text())
    concs = list(range(1, files + 1))
    meta = {"infmax_model_prefix": "smollm2", "conc": 1, "eval_concs": concs}
    (folder / "meta_env.json").write_text(json.dumps({**meta, "completed_eval_concs": concs}))
    row = data["results"]["arithmetic"]
    for conc in concs:
        data["config"]["model_args"]["num_concurrent"] = conc
        data["date"] += 60.03125
        for name in row:
            if name.startswith("exact_match,"):
                row[name] = 0.85 + conc / files / 10
        (folder / f"results_arithmetic_conc{conc}.json").write_text(json.dumps(data, indent=2))
