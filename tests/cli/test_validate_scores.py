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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from utils import errors
from utils.evals import validate_scores

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "utils" / "evals" / "validate_scores.py"
CASES = ROOT / "tests" / "result_dirs"
STATUS = {"pass": 0, "fail": 1, "unusable": 2, "not_measured": 3}
ALL = sorted(path for kind in STATUS for path in (CASES / kind).iterdir())


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@dataclass
class Done:
    """What a command came to."""

    returncode: int
    stdout: str
    stderr: str


def gate(folder: Path, *arguments: str) -> Done:
    """The gate as the script runs it, in this process: a hundred cases are then a second's work."""
    output, complaints = io.StringIO(), io.StringIO()
    with (
        inside(folder),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(complaints),
        unittest.mock.patch.dict(os.environ, {"COLUMNS": "100"}),
    ):
        try:
            status = errors.run(lambda: validate_scores.main(arguments))
        except SystemExit as exit_:  # argparse's
            status = int(exit_.code or 0)
    return Done(status, output.getvalue(), complaints.getvalue())


@pytest.mark.parametrize("case", ALL, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_case(case: Path, tmp_path: Path) -> None:
    work = tmp_path / "results"
    shutil.copytree(case, work, symlinks=True)
    expected = work / "expected.txt"
    wanted = expected.read_text() if expected.exists() else ""
    expected.unlink(missing_ok=True)
    file = work / "arguments.txt"
    text = file.read_text().replace("{cases}", str(CASES)) if file.exists() else ""

    before = sorted(work.rglob("*"))
    done = gate(work, *shlex.split(text))
    assert sorted(work.rglob("*")) == before
    status, output = done.returncode, done.stdout + done.stderr
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
    assert done.stdout == json.dumps(report, indent=2, sort_keys=True) + "\n"
    assert report["ignored"] == []
    outcomes = [verdict["outcome"] for verdict in report["verdicts"]]
    assert outcomes == ["not_measured", "not_measured", "fail"]
    assert report["summary"] == "0 passed, 1 failed, 2 not measured"
    assert report["status"] == done.returncode == 1


def test_output_as_junit(tmp_path: Path) -> None:
    junitparser = pytest.importorskip("junitparser")
    file = tmp_path / "gate.xml"
    case = CASES / "not_measured" / "e14_five_prompts"
    done = gate(case, "--junit", str(file), "--expected-concs", "32")
    document = junitparser.JUnitXml.fromfile(str(file))
    assert (document.tests, document.failures, document.errors) == (2, 0, 1)
    assert done.returncode == 3
    assert done.stdout.endswith("1 passed, 1 inconclusive\n")
    gate(CASES / "fail" / "failed_beats_not_measured", "--junit", str(file))
    document = junitparser.JUnitXml.fromfile(str(file))
    assert (document.tests, document.failures, document.errors) == (3, 1, 2)
    [failed] = [case for suite in document for case in suite if case.is_failure]
    assert (failed.classname, failed.name) == ("gsm8k conc=1", "exact_match,strict-match")


def test_explain_prints_the_evidence_of_one_cell() -> None:
    case = CASES / "fail" / "one_point_of_two_below"
    done = gate(case, "--explain", "gsm8k conc=1")
    told = json.loads(done.stdout)
    assert told["evidence"] == ["results_gsm8k_conc1.json"]
    assert done.stdout == json.dumps(told, indent=2, sort_keys=True) + "\n"
    assert done.returncode == 0
    content = told["content"]["results_gsm8k_conc1.json"]
    assert content["results"]["gsm8k"]["exact_match,strict-match"] == told["measured"]
    assert content["left_out"] == []
    assert gate(case, "--explain", "gsm8k conc=32").returncode == 1
    wrong = gate(case, "--explain", "gsm8k conc=64")
    assert wrong.returncode == 2
    assert "gsm8k conc=1; gsm8k conc=32" in wrong.stderr


@pytest.mark.parametrize(
    ("case", "name", "text"),
    [("zero_bytes", "results_gsm8k_conc1.json", "empty"), ("not_an_object", None, "not an object")],
)
def test_explain_of_what_cannot_be_shown(case: str, name: str | None, text: str) -> None:
    name = name or "results_gsm8k_conc1.json"
    told = json.loads(gate(CASES / "not_measured" / case, "--explain", name).stdout)
    assert text in told["content"][name]


def test_explain_leaves_the_raw_part_out() -> None:
    case = CASES / "pass" / "two_points_and_an_al_record_v2"
    told = json.loads(gate(case, "--golden", "../../golden", "--explain", "AL on N=2").stdout)
    content = told["content"]["results_speedbench_al_on_mtp2.json"]
    assert content["left_out"] == ["checks", "raw"]
    assert content["verify_steps"] == 1000


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


def test_runs_by_path_from_within_the_folder_that_it_judges() -> None:
    case = CASES / "fail" / "one_point_of_two_below"
    done = subprocess.run([sys.executable, str(SCRIPT)], cwd=case, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (case / "expected.txt").read_text()


def test_worst_verdicts_come_last() -> None:
    lines = gate(CASES / "fail" / "failed_beats_not_measured").stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["NOT_MEASURED", "NOT_MEASURED", "FAIL"]


def test_missing_directory_is_bad_usage(tmp_path: Path) -> None:
    done = gate(tmp_path, "--results-dir", "nowhere")
    assert done.returncode == 2
    assert "no such directory" in done.stderr


def test_the_failsafe_fails_twice_over() -> None:
    """CI feeds it to the gate; each of the two gates alone must turn it red."""
    done = gate(ROOT / "tests" / "failsafe")
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL ")]
    assert [line.split(":")[0].removeprefix("FAIL").strip() for line in failed] == [
        "gsm8k conc=32",
        "AL on N=2",
    ]


def test_output_is_one_piece_and_any_folder_may_be_judged(tmp_path: Path) -> None:
    """Files in folders below, hidden ones and links left out."""
    case = CASES / "pass" / "exactly_at_the_threshold"
    shutil.copytree(case, tmp_path / "a" / "b")
    shutil.copytree(CASES / "fail" / "below_threshold", tmp_path / "a" / ".hidden")
    (tmp_path / "a" / "link").symlink_to(CASES / "fail" / "below_threshold")
    (tmp_path / "a" / "b" / "meta_env.json").rename(tmp_path / "a" / "meta_env.json")
    (tmp_path / "a" / "results_folder.json").mkdir()
    done = gate(tmp_path, "--results-dir", "a")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 passed")


def test_a_verdict_is_printed_in_any_encoding() -> None:
    case = CASES / "pass" / "exactly_at_the_threshold"
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        cwd=case,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2014" in done.stdout


@pytest.mark.parametrize("closed", ["closed/", "./"])
def test_a_folder_that_cannot_be_listed(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(CASES / "pass" / "exactly_at_the_threshold", tmp_path, dirs_exist_ok=True)
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if path.removeprefix("./") == closed.removeprefix("./"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    done = gate(tmp_path)
    assert (done.returncode, done.stderr) == (3, "")
    assert f"{closed}: file no value — unreadable: can't be listed (Permission" in done.stdout


def test_a_pipe_is_no_result_and_nobody_waits_for_it(tmp_path: Path) -> None:
    shutil.copytree(CASES / "pass" / "exactly_at_the_threshold", tmp_path, dirs_exist_ok=True)
    os.mkfifo(tmp_path / "results_pipe.json")
    done = gate(tmp_path)
    assert done.returncode == 3
    assert "results_pipe.json: file no value — unreadable: the file is empty" in done.stdout


def test_a_junit_file_that_cannot_be_written_hides_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = gate(CASES / "fail" / "below_threshold", "--junit", str(tmp_path / "file" / "x.xml"))
    assert done.returncode == 3
    assert done.stdout == (CASES / "fail" / "below_threshold" / "expected.txt").read_text()
    assert "can't be written" in done.stderr


def test_an_output_that_takes_nothing_is_no_verdict() -> None:
    case = CASES / "pass" / "exactly_at_the_threshold"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, str(SCRIPT)], cwd=case, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 3
    assert done.stderr == "error: the output can't be written (No space left on device)\n"
