"""The local twin: a dispatch with its matrix, artifacts and collection, as GitHub would run it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.cli import checkout
from tests.decode import points
from tests.shell.conftest import free_port
from tests.waiting import until
from utils import records
from utils.ci import actions, shell

CONC = "conc=1, 4"
FIRST = "smollm2_bf16_cpu_vllm_mtp_tp1-ep1_isl128-osl32_conc1"
SECOND = "smollm2_bf16_cpu_vllm_mtp_tp1-ep1_isl128-osl32_conc4_evals-1-4_thinking-off"
REPORTS = {"summary.md", "junit.xml", "report.html"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout.make(tmp_path_factory.mktemp("tree"))


@pytest.fixture
def own_tree(tmp_path: Path) -> Path:
    """A copy to break."""
    folder = tmp_path / "tree"
    folder.mkdir()
    return checkout.make(folder)


def dispatch(tree: Path, work: Path, *inputs: str, **environment: str) -> tuple[int, str]:
    twin = checkout.twin(tree, work, *inputs, **environment)
    output, _ = twin.communicate(timeout=120)
    return twin.returncode, output


@pytest.fixture(scope="module")
def green(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    work = tmp_path_factory.mktemp("green") / "work"
    status, output = dispatch(tree, work, CONC, "mtp=on")
    assert status == 0, output
    return work, output


def artifacts(work: Path) -> list[str]:
    return sorted(path.name for path in (work / "artifacts").iterdir())


def test_a_dispatch_leaves_artifacts_tables_and_reports(green: tuple[Path, str]) -> None:
    work, output = green
    assert artifacts(work) == [
        "collected_1",
        f"results_{FIRST}_1",
        f"results_{SECOND}_1",
        "sweep-plan_1",
    ]
    for name in (f"results_{FIRST}_1", f"results_{SECOND}_1"):
        assert {path.name for path in (work / "artifacts" / name).iterdir()} >= REPORTS
    collected = work / "artifacts" / "collected_1"
    assert {path.name for path in (collected / "cells").iterdir()} >= REPORTS
    table = records.read_json(collected / "tables" / "eval_results.json")
    assert table["complete"] is True
    assert "# PASS: 2 cells, 2 PASS" in output
    assert "# PASS: 2 cells, 2 PASS" in (work / "summary.md").read_text()


def test_the_canary_goes_first_and_the_gate_comes_after_the_upload(green: tuple[Path, str]) -> None:
    steps = re.findall(r"^--- (.+): success$", green[1], re.MULTILINE)
    short = [step.rpartition(" / ")[2] for step in steps]
    cell = short[short.index("cell: Launch") : short.index("cell: Judge") + 1]
    assert cell == ["cell: Launch", "cell: Report", "cell: Keep the results", "cell: Judge"]
    jobs = [step.removeprefix("sweep / ").split(" ")[0].rstrip(":") for step in steps]
    assert list(dict.fromkeys(jobs)) == ["plan", "canary", "batch-1", "collect-evals"]


def test_a_sabotaged_golden_is_red_on_every_surface(own_tree: Path, tmp_path: Path) -> None:
    golden = own_tree / "benchmarks" / "golden_al" / "smollm2_ngram.yaml"
    text = golden.read_text()
    changed = text.replace("accepted: 18, steps: 20, per_position: [9, 6, 3]", WORSE)
    assert changed != text
    golden.write_text(changed)
    status, output = dispatch(own_tree, tmp_path / "work", CONC)
    assert status == 1
    line = next(row for row in output.splitlines() if row.startswith("FAIL         AL off N=3"))
    assert "below_golden" in line
    assert f"- FAIL {SECOND}" in output
    assert "# FAIL: 2 cells, 1 PASS, 1 FAIL" in output
    collected = tmp_path / "work" / "artifacts" / "collected_1"
    for folder in (tmp_path / "work" / "artifacts" / f"results_{SECOND}_1", collected / "cells"):
        assert "## FAIL" in (folder / "summary.md").read_text()
        assert 'failures="1"' in (folder / "junit.xml").read_text()
        assert "below_golden" in (folder / "report.html").read_text()
    rows = records.read_json(collected / "tables" / "eval_results.json")["rows"]
    assert [row["outcome"] for row in rows if row["kind"] == "al"] == ["fail"]
    steps = re.findall(r"cell: (Judge|Keep the results): (\w+)", output)
    assert steps[-2:] == [("Keep the results", "success"), ("Judge", "failure")]


WORSE = "accepted: 24, steps: 20, per_position: [12, 8, 4]"


@pytest.fixture(scope="module")
def lost(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A dispatch whose second cell measured nothing."""
    work = tmp_path_factory.mktemp("lost") / "work"
    status, output = dispatch(tree, work, CONC, FAKE_CELLS=json.dumps({"4": "crash"}))
    assert status == 1, output
    return work, output


def test_a_lost_cell_is_incomplete_by_name(lost: tuple[Path, str]) -> None:
    work, output = lost
    assert f"- NOT MEASURED {SECOND}" in output
    assert "# NOT MEASURED — INCOMPLETE: 2 cells, 1 PASS, 1 NOT MEASURED" in output
    assert f"results_{SECOND}_1" in artifacts(work), "its evidence is kept"
    table = (work / "artifacts/collected_1/tables/eval_results.md").read_text()
    assert "INCOMPLETE" in table


def test_a_red_canary_stops_the_others(tree: Path, tmp_path: Path) -> None:
    crash = json.dumps({"1": "crash"})
    status, output = dispatch(tree, tmp_path / "work", CONC, FAKE_CELLS=crash)
    assert status == 1
    assert "--- sweep / batch-1: skipped" in output
    assert f"- NOT MEASURED {SECOND}: no artifact: its job didn't run or was lost" in output


def test_resume_keeps_what_was_measured(tree: Path, lost: tuple[Path, str], tmp_path: Path) -> None:
    sweep = (
        *("recipes=smollm2_bf16_cpu_vllm_mtp", "scenarios=128/32", "concurrencies=1, 4"),
        f"resume-run={lost[0]}",
    )
    twin = checkout.twin(tree, tmp_path / "second", *sweep, workflow="run-sweep")
    output, _ = twin.communicate(timeout=120)
    assert twin.returncode == 0, output
    assert f"kept {FIRST}" in output
    assert artifacts(tmp_path / "second") == ["collected_1", f"results_{SECOND}_1", "sweep-plan_1"]
    assert "# PASS: 2 cells, 2 PASS" in output
    assert "(measured by run" in output


def test_an_empty_selection_is_red_with_near_names(tree: Path, tmp_path: Path) -> None:
    status, output = dispatch(tree, tmp_path / "work", "recipes=smollm2_bf16_cpu_vlm")
    assert status == 1
    assert "did you mean smollm2_bf16_cpu_vllm" in output
    assert "--- sweep / canary: skipped" in output
    assert "--- sweep / collect-evals: skipped" in output


REFUSED = [
    (("nmae=x",), "e2e-tests has no input 'nmae'"),
    (("mtp=maybe",), "mtp is 'maybe', want one of on, off, both"),
    (("conc",), "want INPUT=VALUE"),
    (("ref=no-such-branch",), "the twin runs the tree as it is"),
]


@pytest.mark.parametrize(("inputs", "said"), REFUSED)
def test_what_cannot_be_dispatched_is_refused(
    inputs: tuple[str, ...], said: str, tree: Path, tmp_path: Path
) -> None:
    status, output = dispatch(tree, tmp_path / "work", *inputs)
    assert status == 2
    assert said in output


UNKNOWN = [
    ("    timeout-minutes: 20\n", "    services: {}\n", "the twin can't do services"),
    (
        "        run: python3",
        "        continue-on-error: true\n        run: python3",
        "can't do cont",
    ),
    ("actions/setup-python@", "someone/else@", "no stand-in for someone/else"),
    ("          persist-credentials: false\n", "          lfs: true\n", "doesn't know lfs"),
    ('"$RUNNER_TEMP/plan"\n', '"${{ runner.temp }}/plan"\n', "an expression in `run`"),
    ("inputs.ref || github.sha", "inputs.ref || github.actor", "'github.actor'"),
]


@pytest.mark.parametrize(("text", "other", "said"), UNKNOWN)
def test_what_the_twin_cannot_do_is_refused_by_name(
    text: str, other: str, said: str, own_tree: Path, tmp_path: Path
) -> None:
    path = own_tree / ".github" / "workflows" / "run-sweep.yml"
    content = path.read_text()
    assert text in content
    path.write_text(content.replace(text, other, 1))
    status, output = dispatch(own_tree, tmp_path / "work")
    assert status == 2, output
    assert said in output


@pytest.mark.parametrize(("floor", "status", "said"), [("1.5", 0, "PASS"), ("2.5", 1, "FAIL")])
def test_a_training_run_is_judged_from_its_artifact(
    floor: str, status: int, said: str, tree: Path, tmp_path: Path
) -> None:
    history = tmp_path / "earlier" / "artifacts" / "training" / "out" / "history.jsonl"
    history.parent.mkdir(parents=True)
    row = points.measured(10, points.one_set([(20 + i % 3, 20) for i in range(32)]))
    history.write_text(json.dumps(row) + "\n")
    inputs = ("history=out", f"floor={floor}", "artifact=training", f"run-id={tmp_path}/earlier")
    twin = checkout.twin(tree, tmp_path / "work", *inputs, workflow="decode-eval")
    output, _ = twin.communicate(timeout=120)
    assert twin.returncode == status, output
    assert f"\n{said} " in output


def test_a_golden_is_collected_and_by_default_not_proposed(tree: Path, tmp_path: Path) -> None:
    inputs = ("collection=smollm2", "runner=here", "hardware=cpu", "num-spec-tokens=2 3")
    twin = checkout.twin(tree, tmp_path / "work", *inputs, workflow="speedbench-al", DRY_RUN="1")
    output, _ = twin.communicate(timeout=120)
    lengths = re.findall(r'"--num-spec-tokens", "(\d)"', output)
    assert lengths == ["2", "3"]
    assert "no files were found" in output, "a dry run measures nothing, and that is red"
    assert (twin.returncode, "--- propose: skipped" in output) == (1, True)


def test_a_secret_that_is_not_passed_on_is_missed(own_tree: Path, tmp_path: Path) -> None:
    path = own_tree / ".github" / "workflows" / "run-sweep.yml"
    passed = "    secrets:\n      HF_TOKEN: ${{ secrets.HF_TOKEN }}\n"
    path.write_text(path.read_text().replace(passed, "", 1))
    status, output = dispatch(own_tree, tmp_path / "work")
    assert status == 2
    assert "nothing is called 'secrets.HF_TOKEN' here" in output


def alive(token: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_cancel_keeps_finished_cells_and_leaves_nothing_alive(
    number: signal.Signals, tree: Path, tmp_path: Path
) -> None:
    """The second cell's engine loads forever, with workers that ignore TERM."""
    token = f"SPECGATE_TEST={tmp_path}"
    work = tmp_path / "work"
    environment = {
        "FAKE_CELLS": json.dumps({"4": "recipe"}),
        "SPECGATE_TEST": str(tmp_path),
        "PORT": str(free_port()),
    }
    twin = checkout.twin(tree, work, CONC, **environment)
    until(lambda: any("SIG_IGN" in line for line in alive(token)))
    twin.send_signal(number)
    output, _ = twin.communicate(timeout=60)
    until(lambda: not alive(token), 12)
    assert f"results_{FIRST}_1" in artifacts(work)
    if number == signal.SIGKILL:  # nobody is left to collect, as when a runner is lost
        assert twin.returncode == -number
        return
    assert twin.returncode == 130, output
    assert "cell: Launch: cancelled" in output
    assert "cell: Keep the results: success" in output
    assert "collect-evals: Collect: failure" in output, "it ran to its end"
    assert "# NOT MEASURED — INCOMPLETE: 2 cells, 1 PASS, 1 NOT MEASURED" in output
    assert artifacts(work)[0] == "collected_1"


def test_a_step_that_ignores_everything_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        *((signal.SIGINT, 7.5), (signal.SIGTERM, 2.5)),
        (signal.SIGKILL, 0.0),
    ) == shell.LADDER, "a GitHub runner's"
    monkeypatch.setattr(shell, "LADDER", [(number, wait / 10) for number, wait in shell.LADDER])
    script = tmp_path / "step"
    script.write_text(
        "trap 'echo INT >>log' INT; trap 'echo TERM >>log' TERM\n" + "sleep 0.1\n" * 300
    )
    one = shell.Shell()
    with one.listening():
        began = time.monotonic()
        status, ended = one.run(script, {"PATH": "/usr/bin:/bin"}, tmp_path, began + 0.3)
    assert (status, ended) == (-signal.SIGKILL, True)
    assert (tmp_path / "log").read_text() == "INT\nTERM\n"


def test_a_large_step_summary_is_red_as_on_github(own_tree: Path, tmp_path: Path) -> None:
    path = own_tree / ".github" / "workflows" / "run-sweep.yml"
    text = 'head -c 1100000 /dev/zero >>"$GITHUB_STEP_SUMMARY"\n'
    line = "        run: .venv/bin/python -m utils.ci outputs"
    content = path.read_text()
    assert line in content
    path.write_text(content.replace(line, f"        run: {text}#", 1))
    status, output = dispatch(own_tree, tmp_path / "work")
    assert status == 1
    assert "a step summary of 1100000 bytes" in output


def test_an_artifact_s_name_is_taken_once(tmp_path: Path) -> None:
    place = actions.Place(tmp_path, tmp_path / "artifacts")
    source = tmp_path / "results"
    source.mkdir()
    given = {"name": "results_1", "path": str(source)}
    with pytest.raises(actions.StepFailed, match="no files were found"):
        actions.run("actions/upload-artifact@x", given, place)
    (source / "a.json").write_text("{}")
    (source / ".hidden").write_text("{}")
    actions.run("actions/upload-artifact@x", given, place)
    assert [path.name for path in (tmp_path / "artifacts/results_1").iterdir()] == ["a.json"]
    with pytest.raises(actions.StepFailed, match="409"):
        actions.run("actions/upload-artifact@x", given, place)
    with pytest.raises(actions.StepFailed, match="can't be an artifact's name"):
        actions.run("actions/upload-artifact@x", {**given, "name": "a:b"}, place)
    with pytest.raises(actions.StepFailed, match="artifact not found"):
        download = {"name": "other", "path": str(tmp_path / "there")}
        actions.run("actions/download-artifact@x", download, place)


def test_the_work_folder_must_be_new(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    status, output = dispatch(tree, tmp_path / "work")
    assert (status, "exists already" in output) == (2, True)
    shutil.rmtree(tmp_path / "work")
