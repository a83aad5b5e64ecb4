"""`python3 -m utils.records`: every file by its content, and the table of formats."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from utils import record_kinds
from utils.errors import HarnessError, UsageError
from utils.evals import dynamo_logs, meta_env, speedbench_al
from utils.golden import __main__ as golden
from utils.serving import bench, greedy

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "result_dirs"
PLANNED = CASES / "pass" / "planned_run"
INFERENCEX = CASES / "pass" / "inferencex_directory"


def check(capsys: pytest.CaptureFixture[str], *files: Path) -> tuple[int, list[str]]:
    status = record_kinds.main(["check", *map(str, files)])
    return status, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (PLANNED / "plan.json", "plan"),
        (PLANNED / "results_arithmetic_conc8.json", "lm_eval_results"),
        (PLANNED / "results_speedbench_al_off_mtp3.json", "al_record_v2"),
        (PLANNED / "smollm2_serving.json", "serving"),
        (INFERENCEX / "meta_env.json", "meta_env"),
        (INFERENCEX / "results_speedbench_al_on_mtp2.json", "al_record_v1"),
        (next(INFERENCEX.glob("agg_*.json")), "inferencex_agg"),
        (ROOT / "benchmarks" / "models.yaml", "models"),
        (ROOT / "benchmarks" / "tasks" / "thresholds.yaml", "thresholds"),
        (ROOT / "benchmarks" / "tasks" / "budgets.yaml", "budgets"),
        (ROOT / "benchmarks" / "golden_al" / "dsv4_mtp.yaml", "golden"),
        (ROOT / "benchmarks" / "golden_al" / "tolerances.yaml", "tolerances"),
    ],
)
def test_kinds(file: Path, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    renamed = tmp_path / f"x{file.suffix}"
    shutil.copy(file, renamed)
    assert check(capsys, renamed) == (0, [f"ok    {renamed}: {kind}"])


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.json", "", "the file is empty"),
        ("a.json", "[]", "no known kind of file"),
        ("a.json", "{}", "no known kind of file"),
        ("a.json", '{"schema": "novel/1"}', "no known kind of file"),
        ("a.json", '{"schema": "plan/2"}', "plan: $"),
        ("a.json", '{"conc": 1, "infmax_model_prefix": ""}', "meta_env: $.infmax_model_prefix"),
        ("a.json", '{"speedbench_al_eval_version": 3}', "al_record_v2: $"),
        ("a.yaml", "a: [", "can't be read as YAML"),
        ("a.yaml", "schema: golden/1", "golden: $"),
    ],
)
def test_what_is_wrong(
    name: str, text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    status, [line] = check(capsys, tmp_path / name)
    assert status == 3
    assert line.startswith(f"wrong {tmp_path / name}: {why}")


def test_one_line_per_file_and_the_worst_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text("{")
    status, lines = check(capsys, tmp_path / "a.json", PLANNED / "plan.json")
    assert status == 3
    assert [line.split()[0] for line in lines] == ["wrong", "ok"]


def test_a_missing_file_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        record_kinds.main(["check", str(tmp_path / "none.json")])


def test_runs_as_a_module(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"a": 1}))
    done = subprocess.run(
        [sys.executable, "-m", "utils.records", "check", str(tmp_path / "a.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (3, "")


def test_docs_are_in_step() -> None:
    """Run `python3 -m utils.records docs > docs/schemas.md` when a schema has changed."""
    assert (ROOT / "docs" / "schemas.md").read_text() == record_kinds.docs()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (golden.main, "explain RECORD --plan PLAN"),
        (
            speedbench_al.main,
            "measure --base-url http://127.0.0.1:1 --engine vllm --model m --model-prefix smollm2"
            " --thinking off --num-spec-tokens 3 --prompts P --output OUT --plan PLAN",
        ),
        (
            greedy.main,
            "--base-url http://127.0.0.1:1 --model m --model-prefix smollm2 --output OUT"
            " --plan PLAN",
        ),
        (
            bench.main,
            "--base-url http://127.0.0.1:1 --model m --model-prefix smollm2 --isl 8 --osl 8"
            " --concurrency 1 --output OUT --plan PLAN",
        ),
        (meta_env.main, "--plan PLAN --isl 8 --osl 8 --conc 1 --output OUT"),
        (dynamo_logs.main, "mark start LOGS --plan PLAN --thinking off --num-spec-tokens 3"),
        (dynamo_logs.main, "LOGS OUT --plan PLAN"),
    ],
)
def test_no_command_believes_a_plan_of_another_shape(
    command: Callable[[list[str]], int], words: str, tmp_path: Path
) -> None:
    (tmp_path / "PLAN").write_text('{"schema": "plan/1", "run_id": "r", "cells": []}')
    argv = [str(tmp_path / word) if word.isupper() else word for word in words.split()]
    with pytest.raises(HarnessError, match=r"PLAN: .*\(schema plan\)"):
        command(argv)
