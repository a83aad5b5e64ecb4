"""Snapshot, head and referee: cases that the engine's Python runs, all in one process."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.engine.server import ROOT, find_engine

CASES = Path(__file__).with_name("torch_cases.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    folder = tmp_path_factory.mktemp("cases")
    done = subprocess.run(
        [find_engine().python, "-P", CASES, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("case", re.findall(r"^def (case_\w+)", CASES.read_text(), re.MULTILINE))
def test_case(case: str, results: dict[str, str | None]) -> None:
    assert results[case] is None, results[case]
