"""The gate on three files, two of lm-eval and an AL record, against a loader of the same files."""

from __future__ import annotations

from pathlib import Path

from tests.perf.measure import ROOT, Line, installed, paired, python

CASES = ROOT / "tests" / "result_dirs"
CASE = CASES / "pass" / "two_points_and_an_al_record_v2"
REPEATS = 9


def run() -> list[Line]:
    gate = python(
        str(ROOT / "utils" / "evals" / "validate_scores.py"), "--golden", str(CASES / "golden")
    )
    peer = python(str(Path(__file__).with_name("load_json.py")), ".")
    with installed() as env:
        ours, theirs = paired(gate, peer, CASE, env, REPEATS)
    return [Line("CPU, 3 files", ours.cpu_s, theirs.cpu_s, "s", 0.15)]
