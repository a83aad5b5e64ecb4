"""Many runs of one recipe on a real vLLM: how often is the gate's word on two honest runs wrong?

    python -m tests.perf.replicates measure RUNS.jsonl --drafter good --seconds 150
    python -m tests.perf.replicates study RUNS.jsonl OUT.json

`measure` adds runs to a file until the time is up, on one server; `study` judges pairs of them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tests.engine.server import MODEL, Server, find_engine, serve, speculative
from utils import records
from utils.evals import al_record, speedbench, speedbench_al
from utils.golden import cell_test, interval, registry
from utils.golden.interval import Rows, Shift

PROMPTS, OUTPUT_LEN, CONCURRENCY, TEMPERATURE, N = 32, 97, 8, 1.0, 3
TOLERANCES = records.read_yaml(registry.FOLDER / registry.TOLERANCES, "tolerances")
ERROR_RATE = TOLERANCES["error_rate"]["value"]
DRAFTERS: dict[str, dict[str, Any]] = {
    "good": {"prompt_lookup_min": 2, "prompt_lookup_max": 4},
    # One matching token is enough for a draft: more drafts, worse ones.
    "worse": {"prompt_lookup_min": 1, "prompt_lookup_max": 1},
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("measure").add_argument
    add("runs", type=Path)
    add("--drafter", choices=DRAFTERS, required=True)
    add("--seconds", type=float, default=150.0)
    add = commands.add_parser("study").add_argument
    add("runs", type=Path)
    add("output", type=Path)
    args = parser.parse_args(argv)
    if args.command == "measure":
        measure(args.runs, args.drafter, args.seconds)
        return
    runs = [json.loads(line) for line in args.runs.read_text().splitlines()]
    found = study(*([run["rows"] for run in runs if run["drafter"] == d] for d in DRAFTERS))
    args.output.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def measure(runs: Path, drafter: str, seconds: float) -> None:
    """Append one line a run: {drafter, rows: [[accepted, steps] of each prompt]}."""
    seed = time.time_ns() % 2**31  # a server with the same seed would repeat itself
    arguments = speculative(method="ngram", num_speculative_tokens=N, **DRAFTERS[drafter])
    arguments += ["--seed", str(seed)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PYTHONPATH"] = str(_plugin(folder / "plugin"))
        prompts = speedbench.prepare_proxy(folder)
        with serve(find_engine(), folder, arguments) as server:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                rows = _one(server, prompts, folder / "al.json")
                with runs.open("a") as file:
                    file.write(json.dumps({"drafter": drafter, "rows": rows}) + "\n")


def _plugin(folder: Path) -> Path:
    """A folder that vLLM finds its plugin in."""
    about = folder / "vllm_expand-1.dist-info"
    about.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("vllm_expand.py"), folder)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-expand\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nexpand = vllm_expand:register\n"
    )
    return folder


def _one(server: Server, prompts: Path, output: Path) -> Sequence[tuple[int, int]]:
    status = speedbench_al.main(
        [
            *("measure", "--no-gate", "--base-url", server.base_url, "--engine", "vllm"),
            *("--model", MODEL, "--model-prefix", "smollm2", "--thinking", "off"),
            *("--num-spec-tokens", str(N), "--temperature", str(TEMPERATURE)),
            *("--prompts", str(prompts), "--num-prompts", str(PROMPTS)),
            *("--output-len", str(OUTPUT_LEN), "--concurrency", str(CONCURRENCY)),
            *("--output", str(output)),
        ]
    )
    rows = al_record.figures(al_record.read(output)).rows
    if status or len(rows) != PROMPTS:
        raise RuntimeError(f"status {status}, {len(rows)} rows")
    return rows


def study(good: Sequence[Rows], worse: Sequence[Rows]) -> dict[str, Any]:
    """Every run judged against every golden of one other run, or of a few, as if it were new."""
    if any(one == other for one, other in combinations(good, 2)):
        raise ValueError("two runs are equal: the server had the same seed, they are no replicates")
    found: dict[str, Any] = {
        "runs": len(good),
        "acceptance_length": fmean(map(_al, good)),
        "sd_of_log_acceptance_length": stdev(math.log(_al(run)) for run in good),
        "steps_a_run": fmean(sum(steps for _, steps in run) for run in good),
        "one_golden_run": _judged(_pairs(good, good, 1)),
        "five_golden_runs": _judged(_pairs(good, good, 5)),
    }
    if worse:
        found["worse"] = {
            "runs": len(worse),
            "acceptance_length": fmean(map(_al, worse)),
            "one_golden_run": _judged(_pairs(worse, good, 1)),
            "five_golden_runs": _judged(_pairs(worse, good, 5)),
        }
    return found


def _pairs(runs: Sequence[Rows], goldens: Sequence[Rows], k: int) -> Iterator[Shift]:
    """Each run against every other, or against as many samples of k others."""
    choose = random.Random(1)
    for run in runs:
        others = [other for other in goldens if other is not run]
        samples = [[other] for other in others]
        if k > 1:
            samples = [choose.sample(others, k) for _ in others]
        for golden in samples:
            shift = interval.paired(run, golden, N, TOLERANCES["spread"]["min_pairs"]["value"])
            assert shift
            yield shift


def _judged(shifts: Iterable[Shift]) -> dict[str, float]:
    """Shares of all judgements, and how wide and how far off the intervals are on average."""
    found = list(shifts)
    outcomes = Counter(cell_test.decide(shift, TOLERANCES) for shift in found)
    return {
        **{outcome.value: outcomes[outcome] / len(found) for outcome in outcomes},
        "covers_no_shift": fmean(abs(s.estimate) <= s.reach(0.975) for s in found),
        "excludes_no_shift_at_error_rate": fmean(s.chance() <= ERROR_RATE for s in found),
        "point_outside_limits": fmean(not cell_test.within(s, TOLERANCES) for s in found),
        "mean_estimate": fmean(s.estimate for s in found),
        "mean_standard_error": fmean(s.standard_error for s in found),
        "judgements": len(found),
    }


def _al(rows: Rows) -> float:
    return 1 + sum(a for a, _ in rows) / sum(s for _, s in rows)


if __name__ == "__main__":
    main()
