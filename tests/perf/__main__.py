"""Run benches: python -m tests.perf [NAME…]; status 1 when a limit isn't kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from tests.perf.measure import Line

SHARED = {
    "__init__",
    "__main__",
    "decode_trainer",
    "measure",
    "load_json",
    "mock_server",
    "our_client",
    "replicates",
    "simulated_runs",
    "small_client",
    "vllm_expand",
}
BENCHES = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
NAMES = [name for name in BENCHES if name not in SHARED]


def main(argv: Sequence[str]) -> int:
    if unknown := set(argv) - set(NAMES):
        print(f"no bench {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
        return 2
    kept = True
    for name in argv or NAMES:
        for line in import_module(f"tests.perf.{name}").run():
            print(f"{name:<14}{show(line)}", flush=True)
            kept &= line.kept
    return 0 if kept else 1


def show(line: Line) -> str:
    peer = "—" if line.peer is None else f"{line.peer:.4g} {line.unit}"
    ratio = "—" if line.ratio is None else f"{line.ratio:.2f}"
    what = "ratio" if line.is_ratio else line.unit
    limit = "" if line.limit is None else f"limit {line.limit:g} {what}"
    verdict = "" if line.limit is None else "  kept" if line.kept else "  NOT KEPT"
    ours = f"{line.ours:.4g} {line.unit}"
    return f"{line.name:<40} ours {ours:<12} peer {peer:<12} ratio {ratio:<6} {limit}{verdict}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
