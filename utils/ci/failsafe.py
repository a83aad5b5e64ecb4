"""Proof that red still turns red: the gate on a directory that must fail, with status 1."""

from __future__ import annotations

import subprocess
import sys

from utils import errors
from utils.recipes.settings import ROOT


def check() -> int:
    """0 when the gate, run as CI runs it, ends with 1."""
    gate = [sys.executable, "utils/evals/validate_scores.py", "--results-dir", "tests/failsafe"]
    status = subprocess.run(gate, cwd=ROOT, check=False).returncode
    if status != errors.FAIL:
        print(f"failsafe: the gate ended with {status} on a directory that must fail with 1")
        return errors.FAIL
    print("failsafe: the gate is red where it must be")
    return errors.PASS
