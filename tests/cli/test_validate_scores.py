"""Every folder in tests/result_dirs is a case: its parent says the status, expected.txt the rest.

A folder without expected.txt fails; UPDATE_EXPECTED=1 writes it, for a person to read.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import unittest.mock
from collections.abc import Iterator
from pathlib import Path

import pytest

from utils import errors
from utils.evals import validate_scores

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "utils" / "evals" / "validate_scores.py"
CASES = ROOT / "tests" / "result_dirs"
STATUS = {"pass": 0, "fail": 1, "unusable": 2, "not_measured": 3}
ALL = sorted(path for kind in STATUS for path in (CASES / kind).iterdir())


def gate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script by path, from within the folder that it judges."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=folder,
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100"},
    )


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run_main(folder: Path, arguments: list[str]) -> tuple[int, str]:
    """The gate as the script runs it, in this process: a hundred cases are then a second's work."""
    output = io.StringIO()
    with (
        inside(folder),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
        unittest.mock.patch.dict(os.environ, {"COLUMNS": "100"}),
    ):
        try:
            status = errors.run(lambda: validate_scores.main(arguments))
        except SystemExit as exit_:  # argparse's
            status = int(exit_.code or 0)
    return status, output.getvalue()


@pytest.mark.parametrize("case", ALL, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_case(case: Path, tmp_path: Path) -> None:
    work = tmp_path / "results"
    shutil.copytree(case, work)
    expected = work / "expected.txt"
    wanted = expected.read_text() if expected.exists() else ""
    expected.unlink(missing_ok=True)
    file = work / "arguments.txt"
    text = file.read_text().replace("{cases}", str(CASES)) if file.exists() else ""

    status, output = run_main(work, shlex.split(text))

    if output.startswith("usage:"):  # its layout is argparse's own, and changes with Python
        output = output.splitlines(keepends=True)[-1]
    assert status == STATUS[case.parent.name], output
    assert "Traceback" not in output
    if os.environ.get("UPDATE_EXPECTED"):
        (case / "expected.txt").write_text(output)
    else:
        assert output == wanted


def test_every_case_has_its_expected_output() -> None:
    assert [str(case) for case in ALL if not (case / "expected.txt").is_file()] == []


def test_output_as_json() -> None:
    done = gate(CASES / "fail" / "failed_beats_not_measured", "--json")
    report = json.loads(done.stdout)
    outcomes = [verdict["outcome"] for verdict in report["verdicts"]]
    assert outcomes == ["not_measured", "not_measured", "fail"]
    assert report["summary"] == "0 passed, 1 failed, 2 not measured"
    assert report["status"] == done.returncode == 1


def test_output_as_junit(tmp_path: Path) -> None:
    junitparser = pytest.importorskip("junitparser")
    file = tmp_path / "gate.xml"
    done = gate(CASES / "fail" / "failed_beats_not_measured", "--junit", str(file))
    suite = junitparser.JUnitXml.fromfile(str(file))
    assert (suite.tests, suite.failures, suite.errors) == (3, 1, 2)
    assert done.returncode == 1
    assert done.stdout.endswith("0 passed, 1 failed, 2 not measured\n")


def test_junit_without_its_package_says_so(tmp_path: Path) -> None:
    (tmp_path / "junitparser.py").write_text("raise ImportError\n")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--junit", str(tmp_path / "gate.xml")],
        cwd=CASES / "pass" / "planned_run",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "junitparser" in done.stderr


def test_explain_prints_the_evidence_of_one_cell() -> None:
    case = CASES / "fail" / "one_point_of_two_below"
    done = gate(case, "--explain", "gsm8k conc=1")
    assert json.loads(done.stdout)["evidence"] == ["results_gsm8k_conc1.json"]
    assert done.returncode == 0
    assert gate(case, "--explain", "gsm8k conc=32").returncode == 1
    wrong = gate(case, "--explain", "gsm8k conc=64")
    assert wrong.returncode == 2
    assert "gsm8k conc=1; gsm8k conc=32" in wrong.stderr


def test_runs_as_a_module_from_any_folder(tmp_path: Path) -> None:
    case = CASES / "pass" / "two_points_and_an_al_record_v1"
    done = subprocess.run(
        [sys.executable, "-m", "utils.evals.validate_scores", "--results-dir", str(case)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "3 passed")


def test_worst_verdicts_come_last() -> None:
    lines = gate(CASES / "fail" / "failed_beats_not_measured").stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["NOT_MEASURED", "NOT_MEASURED", "FAIL"]


def test_missing_directory_is_bad_usage(tmp_path: Path) -> None:
    done = gate(tmp_path, "--results-dir", "nowhere")
    assert done.returncode == 2
    assert "no such directory" in done.stderr
