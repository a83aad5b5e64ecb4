"""`pytest -n auto` keeps what belongs together in one process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests import conftest

ROOT = Path(__file__).parents[2]
FILES = ("tests/unit/test_errors.py", "tests/unit/test_verdicts.py", "tests/unit/test_models.py")


def test_the_tests_of_a_file_run_in_one_process() -> None:
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider", *FILES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    ran = re.findall(r"\[(gw\d)\] .* PASSED (\S+)::", done.stdout)
    assert {file for _, file in ran} == set(FILES)
    assert len({worker for worker, _ in ran}) == 2
    assert len(set(ran)) == len(FILES)


def test_files_that_share_fixtures_are_one_scope() -> None:
    for files in conftest.TOGETHER:
        assert all((ROOT / file).is_file() for file in files)
        assert len({conftest.scope(f"{file}::test_x[a::b]") for file in files}) == 1
    assert conftest.scope("tests/unit/test_errors.py::test_x") == "tests/unit/test_errors.py"
