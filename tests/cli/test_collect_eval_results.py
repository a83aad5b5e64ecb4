"""Artifacts of many jobs → one table in which nothing is lost."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from utils import records
from utils.evals.collect_eval_results import main

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "result_dirs"
PLANNED = CASES / "pass" / "planned_run"
TWO_POINTS = CASES / "pass" / "two_points_and_an_al_record_v2"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "artifacts"
    folder.mkdir()
    return folder


def add(root: Path, name: str, case: Path = PLANNED) -> Path:
    return Path(shutil.copytree(case, root / name))


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def collect(root: Path) -> tuple[int, dict[str, Any]]:
    out = root.parent / "out"
    options = ["--golden", str(CASES / "golden"), "--thresholds", str(CASES / "thresholds.yaml")]
    status = main([str(root), str(out), *options])
    table = records.read_json(out / "eval_results.json")
    assert records.schema_problem(table, "eval_results") is None
    lines = (out / "eval_results.csv").read_text().splitlines()
    assert len(list(csv.reader(lines))) == 1 + len(table["rows"])
    return status, table


def markdown(root: Path) -> str:
    return (root.parent / "out" / "eval_results.md").read_text()


def test_one_job(root: Path) -> None:
    add(root, "a")
    status, table = collect(root)
    assert (status, table["complete"], table["present"], table["expected"]) == (0, True, 3, 3)
    score, al, serving = table["rows"]
    assert (score["task"], score["concurrency"], score["score"]) == ("arithmetic", 8, 0.9)
    assert (al["acceptance_length"], al["num_speculative_tokens"], al["thinking"]) == (
        1.9,
        3,
        "off",
    )
    assert (serving["output_tokens_per_s"], serving["isl"], serving["osl"]) == (42.7, 256, 64)
    assert {row["outcome"] for row in table["rows"]} == {"pass"}
    assert (score["isl"], score["thinking"], score["topology"]) == (
        256,
        "off",
        "engines=1 ep_size=1 tp=1",
    )


def test_an_al_is_never_a_score(root: Path) -> None:
    add(root, "a")
    for row in collect(root)[1]["rows"]:
        assert (row["score"] is None) is (row["kind"] != "score")
        assert (row["acceptance_length"] is None) is (row["kind"] != "al")


def test_g8_three_of_four(root: Path) -> None:
    folder = add(root, "a", CASES / "not_measured" / "g9_one_mode_of_two")
    add(root, "b", TWO_POINTS)
    (folder / "results_arithmetic_conc8.json").unlink()
    status, table = collect(root)
    assert (status, table["complete"], table["present"], table["expected"]) == (3, False, 4, 6)
    assert [item["cell"].rpartition(": ")[2] for item in table["missing"]] == [
        "arithmetic conc=8",
        "AL on N=3",
    ]
    assert "# Eval results: 4 of 6 present, INCOMPLETE" in markdown(root)


def test_missing_al_of_a_run_that_speculates(root: Path) -> None:
    add(root, "a", CASES / "not_measured" / "f2_no_al_record_mtp")
    status, table = collect(root)
    assert (status, table["present"], table["expected"]) == (3, 1, 2)
    assert table["missing"][0]["cell"].endswith("AL None N=None")


@pytest.mark.parametrize(
    "changes",
    [
        {"topology": {"tp": 1, "ep_size": 1, "dp_attention": True, "engines": 1}},
        {"hw": "b300"},
        {"precision": "fp4"},
        {"engine": "sglang"},
        {"draft_model": "d"},
    ],
)
def test_g9_jobs_that_differ_in_one_thing_are_different_rows(
    root: Path, changes: dict[str, Any]
) -> None:
    add(root, "a")
    change(add(root, "b") / "plan.json", **changes)
    status, table = collect(root)
    assert (status, table["present"]) == (0, 6)
    assert all(len(row["attempts"]) == 1 for row in table["rows"])


def test_g9_string_booleans_of_inferencex_are_the_same(root: Path) -> None:
    add(root, "a", TWO_POINTS)
    folder = add(root, "b", TWO_POINTS)
    change(folder / "meta_env.json", dp_attention="false", isl=8192)
    for conc in (1, 32):
        change(folder / f"results_gsm8k_conc{conc}.json", date=1796119900.0)
    _, table = collect(root)
    assert table["present"] == 3


def test_lengths_that_are_no_numbers_are_not_said(root: Path) -> None:
    for name, isl in (("a", "8k"), ("b", 8192), ("c", None)):
        change(add(root, name, TWO_POINTS) / "meta_env.json", isl=isl, hw=name)
    status, table = collect(root)
    assert status == 0
    assert {(row["hw"], row["isl"]) for row in table["rows"]} == {
        ("a", None),
        ("b", 8192),
        ("c", None),
    }


def test_numeric_order(root: Path) -> None:
    folder = add(root, "a", TWO_POINTS)
    concs = [1, 4, 8, 16, 32, 128]
    source = json.loads((folder / "results_gsm8k_conc1.json").read_text())
    for conc in concs:
        source["config"]["model_args"]["num_concurrent"] = conc
        (folder / f"results_gsm8k_conc{conc}.json").write_text(json.dumps(source))
    change(folder / "meta_env.json", eval_concs=concs, completed_eval_concs=concs)
    rows = collect(root)[1]["rows"]
    assert [row["concurrency"] for row in rows if row["kind"] == "score"] == concs


class TestAttempts:
    """All are kept; the latest by its own word counts."""

    def two(self, root: Path, first: Any, second: Any) -> tuple[int, dict[str, Any]]:
        """Scores of two jobs; the listing order and the mtime say the contrary."""
        for name, date, score in (("b", first, 0.6), ("a", second, 0.8)):
            folder = add(root, name, CASES / "pass" / "exactly_at_the_threshold")
            file = folder / "results_gsm8k_conc1.json"
            results = {"gsm8k": {"exact_match,strict-match": score}}
            change(file, date=date, results=results)
            os.utime(file, (1e9, 1e9) if name == "a" else (2e9, 2e9))
        (root.parent / "thresholds.yaml").write_text("")
        out = root.parent / "out"
        status = main([str(root), str(out)])
        return status, records.read_json(out / "eval_results.json")

    @pytest.mark.parametrize(
        ("first", "second", "file", "score"),
        [(1e9, 2e9, "a", 0.8), (2e9, 1e9, "b", 0.6)],
    )
    def test_by_embedded_time(
        self, root: Path, first: float, second: float, file: str, score: float
    ) -> None:
        status, table = self.two(root, first, second)
        [row] = table["rows"]
        assert (row["score"], row["chosen"][0], len(row["attempts"])) == (score, file, 2)
        assert status == 0
        assert "(chosen)" in markdown(root)

    @pytest.mark.parametrize(
        ("first", "second", "reason"),
        [(1e9, None, "undated_attempts"), (1e9, 1e9, "same_time")],
    )
    def test_undecided(self, root: Path, first: Any, second: Any, reason: str) -> None:
        status, table = self.two(root, first, second)
        [row] = table["rows"]
        assert (status, row["chosen"], row["score"], row["reason"]) == (3, None, None, reason)
        assert len(table["undecided"]) == 1
        assert not table["complete"]

    def test_a_crashed_rerun_leaves_the_cell_present(self, root: Path) -> None:
        add(root, "a")
        folder = add(root, "b")
        (folder / "results_arithmetic_conc8.json").unlink()
        change(folder / "plan.json", run_id="later")
        status, table = collect(root)
        assert (status, table["missing"]) == (3, [])
        score = table["rows"][0]
        assert (score["score"], len(score["attempts"])) == (0.9, 1)


class TestDropped:
    """What is in no row is in the list, with its reason."""

    def reasons(self, root: Path) -> tuple[int, dict[str, str]]:
        status, table = collect(root)
        return status, {item["file"]: item["reason"] for item in table["dropped"]}

    def test_side_files_do_no_harm(self, root: Path) -> None:
        add(root, "a", CASES / "pass" / "g4_side_files")
        change(root / "a" / "meta_env.json", infmax_model_prefix="smollm2")
        (root / "a" / "results_gsm8k_conc8.json").unlink()
        shutil.copy(PLANNED / "results_arithmetic_conc8.json", root / "a")
        status, dropped = self.reasons(root)
        assert status == 0
        assert dropped["a/agg_dsv4.json"] == "no result of an eval or a benchmark"
        assert len(dropped) == 7

    def test_broken_results(self, root: Path) -> None:
        add(root, "a", CASES / "not_measured" / "zero_bytes")
        status, dropped = self.reasons(root)
        assert status == 3
        assert dropped["a/results_gsm8k_conc1.json"].startswith("unreadable: the file is empty")

    @pytest.mark.parametrize("case", ["plan_broken", "meta_env_broken", "meta_env_wrong_shape"])
    def test_a_job_that_says_nothing_usable(self, root: Path, case: str) -> None:
        folder = add(root, "a", CASES / "not_measured" / case)
        status, dropped = self.reasons(root)
        assert status == 3
        assert set(dropped) == {f"a/{path.name}" for path in folder.glob("*.json")}
        assert all(reason.startswith("its job can't be read: ") for reason in dropped.values())

    def test_results_of_no_job(self, root: Path) -> None:
        add(root, "a")
        (root / "lost").mkdir()
        shutil.copy(PLANNED / "results_arithmetic_conc8.json", root / "lost")
        status, dropped = self.reasons(root)
        assert status == 3
        assert "no plan.json or meta_env.json" in dropped["lost/results_arithmetic_conc8.json"]

    def test_jobs_within_a_job(self, root: Path) -> None:
        add(root, "a")
        add(root, "a/b")
        status, dropped = self.reasons(root)
        assert status == 3
        assert "holds jobs of its own (a/b)" in dropped["a/plan.json"]

    def test_results_that_nobody_asked_for(self, root: Path) -> None:
        add(root, "a", CASES / "not_measured" / "task_not_asked_for")
        add(root, "b", CASES / "not_measured" / "point_not_asked_for")
        status, dropped = self.reasons(root)
        assert status == 3
        assert set(dropped) == {"a/results_gsm8k_conc8.json", "b/results_gsm8k_conc32.json"}

    def test_sources_that_differ(self, root: Path) -> None:
        add(root, "a", CASES / "not_measured" / "plan_and_meta_env_differ")
        status, dropped = self.reasons(root)
        assert (status, list(dropped)) == (3, ["a/plan.json"])
        assert "sources_differ" in dropped["a/plan.json"]


def test_nothing_at_all_is_not_complete(root: Path) -> None:
    status, table = collect(root)
    assert (status, table["complete"], table["rows"]) == (3, False, [])


def test_failing_results_are_rows_like_others(root: Path) -> None:
    add(root, "a", CASES / "fail" / "al_above_the_demos_golden")
    status, table = collect(root)
    assert status == 0
    assert [row["reason"] for row in table["rows"]] == ["", "above_golden", ""]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["nowhere", "out"], "no such directory"), ([".", "./out"], "the next run would collect it")],
)
def test_bad_usage(root: Path, arguments: list[str], text: str) -> None:
    script = ROOT / "utils" / "evals" / "collect_eval_results.py"
    done = subprocess.run(
        [sys.executable, str(script), *arguments], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert text in done.stderr


def test_markdown_and_csv_say_the_same(root: Path) -> None:
    add(root, "a")
    collect(root)
    rows = list(csv.DictReader((root.parent / "out" / "eval_results.csv").read_text().splitlines()))
    assert [row["acceptance_length"] for row in rows] == ["", "1.9", ""]
    assert rows[0]["attempts"] == "1"
    lines = [line for line in markdown(root).splitlines() if line.startswith("| smollm2")]
    assert [line.split(" | ")[14] for line in lines] == ["—", "1.9000", "—"]
