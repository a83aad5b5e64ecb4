"""The CPU recipes, launched as on any machine; their engine is the embedded one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.engine.server import ROOT, free_port

LAUNCHER = ROOT / "runners" / "launch_local.sh"


@dataclass(frozen=True)
class Finished:
    """A green run, its engine gone."""

    results: Path
    output: str


def launch(recipe: str, results: Path, prompts: Path, **variables: str) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "HARNESS_PYTHON": sys.executable,
        "RESULT_DIR": str(results),
        "SPEEDBENCH_DIR": str(prompts.parent),
        **variables,
    }
    return subprocess.Popen(
        ["bash", str(LAUNCHER), recipe],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(recipe: str, folder: Path, prompts: Path) -> Finished:
    """The whole of a recipe, with the greedy outputs that two runs are compared by."""
    results, port = folder / "results", str(free_port())
    run = launch(recipe, results, prompts, PORT=port, LOSSLESS="true", OSL="64")
    output, _ = run.communicate()
    assert run.returncode == 0, output
    assert processes_that_name(port) == []
    return Finished(results, output)


def processes_that_name(word: str) -> list[str]:
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "stat=,args="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [line for line in listed if word in line and not line.startswith("Z")]
