"""`utils.recipes plan`: what is selected, what it costs, what starts it, what is kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import run_files
from tests.fakes import launcher
from utils import errors, records
from utils.recipes import __main__ as command
from utils.recipes import commit, matrix, run_plan, settings, sweep_cells

CPU = ("--recipes", "smollm2_bf16_cpu_vllm_mtp", "--scenarios", "128/32")
COMMIT = "c0ffee00" * 5


def plan(out: Path, *arguments: str) -> int:
    return errors.run(lambda: command.main(["plan", str(out), *arguments]))


def sweep(out: Path, *arguments: str) -> Any:
    assert plan(out, *arguments) == 0
    return records.read_json(out / "sweep.json")


@pytest.fixture(autouse=True)
def at_a_clean_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "commit", lambda _: COMMIT)
    monkeypatch.setattr(commit, "dirty", lambda _: False)


@pytest.fixture
def goldens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The goldens of the canned results."""
    from utils.evals import validate_scores

    folder = settings.ROOT / "tests" / "result_dirs" / "golden"
    judge = validate_scores.validate
    options = validate_scores.Options(golden=folder)
    monkeypatch.setattr(validate_scores, "validate", lambda path: judge(path, options))


def environment(out: Path, cell: str) -> dict[str, str]:
    lines = (out / "cells" / cell / "run.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


GROUPS = [
    ("with", "1, 4", [("1", None), ("4", "1 4")]),
    ("with", "1 4", [("1 4", "1 4")]),
    ("with", "64, 1 4", [("64", "64 1 4"), ("1 4", None)]),
    ("only", "1, 4", [("1 4", "1 4")]),
    ("none", "1, 4", [("1", None), ("4", None)]),
]


@pytest.mark.parametrize(("evals", "concurrencies", "wanted"), GROUPS)
def test_cells_are_groups_and_evals_ride_on_the_highest(
    tmp_path: Path, evals: str, concurrencies: str, wanted: list[Any]
) -> None:
    out = tmp_path / "plan"
    found = sweep(out, *CPU, "--concurrencies", concurrencies, "--evals", evals)
    told = [environment(out, row["id"]) for row in found["cells"]]
    assert [(one["CONC"], one.get("EVAL_CONCURRENT_REQUESTS")) for one in told] == wanted
    assert {one["EVAL_ONLY"] for one in told} == {"true" if evals == "only" else "false"}
    benched = [
        part["concurrency"]
        for row in found["cells"]
        for part in records.read_json(out / "cells" / row["id"] / "plan.json")["cells"]
        if part["kind"] == "throughput"
    ]
    asked = [int(word) for word in concurrencies.replace(",", " ").split()]
    assert benched == ([] if evals == "only" else asked), "evals never take a serving point away"


def test_a_cell_s_plan_is_the_one_that_its_recipe_adopts(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    (row,) = sweep(out, *CPU, "--concurrencies", "1 4")["cells"]
    recipe = settings.ROOT / row["recipe"]
    asked = settings.load(recipe, environment(out, row["id"]))
    words = ["ngram", "3", "prompt_lookup_min=2", "prompt_lookup_max=4"]
    wanted = run_plan.make(asked, run_plan.load_speculation(asked, words))
    adopted = run_plan.adopt(out / "cells" / row["id"] / "plan.json", wanted)
    assert (adopted["commit"], adopted["num_speculative_tokens"]) == (COMMIT, 3)


def test_where_the_weights_are_is_the_launcher_s_to_say(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    (row,) = sweep(out, *CPU, "--concurrencies", "1")["cells"]
    told = {**environment(out, row["id"]), "MODEL_PATH": "/weights"}
    asked = settings.load(settings.ROOT / row["recipe"], told)
    wanted = run_plan.make(asked, run_plan.load_speculation(asked, ["ngram", "3"]))
    adopted = run_plan.adopt(out / "cells" / row["id"] / "plan.json", wanted)
    assert adopted["model_path"] == "/weights"


def test_every_recipe_can_be_planned_and_every_cell_has_a_name_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    shapes = ("--scenarios", "1024/1024 8192/1024", "--image", "an/image:1")
    found = sweep(out, "--concurrencies", "1, 32", *shapes)
    ids = [row["id"] for row in found["cells"]]
    recipes = {row["recipe"] for row in found["cells"]}
    assert len(ids) == len(set(ids)) == 4 * len(recipes)
    assert len(recipes) == len(list(command.FOLDER.parent.glob("*_node/*.sh")))
    assert max(map(len, ids)) < 200, "an artifact's name has room for 256"


def test_a_gpu_cell_names_its_image_and_its_topology(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    (row,) = sweep(out, "--recipes", "dsv4_fp4_b300_vllm_mtp", "--concurrencies", "32")["cells"]
    told = environment(out, row["id"])
    version = told["ENGINE_VERSION"]
    assert told["IMAGE"] == f"vllm/vllm-openai:v{version}"
    assert (told["TP"], told["EP_SIZE"], told["DP_ATTENTION"]) == ("8", "8", "true")
    assert int(told["MAX_MODEL_LEN"]) >= 16384 + 4096, "gsm8k with thinking, and its prompt"
    cost = row["estimate"]
    assert (cost["gpus"], cost["gpu_minutes"]) == (8, 8 * cost["minutes"])
    assert cost["source"] == "assumed in benchmarks/sweeps.yaml"
    assert (row["launcher"], row["runner"]) == ("runners/launch_b300-nv.sh", "b300-nv")


def test_several_nodes_count_and_have_a_list_of_their_own(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    arguments = ("--recipes", "dsv4_fp4_gb200_dynamo-vllm_mtp", "--image", "an/image:1")
    (row,) = sweep(out, *arguments, "--concurrencies", "32")["cells"]
    assert (row["multinode"], row["estimate"]["gpus"]) == (True, 8 + 8), "prefill and decode"
    jobs = records.read_json(out / "matrix.json")
    assert [job["cell"] for job in jobs["multinode"]] == [row["id"]]
    assert (jobs["canary"], jobs["batch-1"]) == ([], [])


def test_another_image_is_not_held_to_a_version(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    arguments = ("--recipes", "dsv4_fp4_b300_vllm", "--concurrencies", "1", "--image", "my/image:1")
    (row,) = sweep(out, *arguments)["cells"]
    told = environment(out, row["id"])
    assert told["IMAGE"] == "my/image:1"
    assert "ENGINE_VERSION" not in told


REFUSED = [
    (
        ("--recipes", "dsv4_fp5_b300*"),
        "no recipe is called 'dsv4_fp5_b300*'; did you mean dsv4_fp4",
    ),
    (("--hw", "b30"), "no recipe is for hardware 'b30'; did you mean b300"),
    (("--recipes", "dsv4_*", "--hw", "cpu"), "by name alone there are dsv4_fp4_"),
    (("--recipes", "*_vllm", "--mtp", "on"), "no recipe fits recipes '*_vllm', mtp 'on'"),
    (("--recipes", "*_gb200_dynamo-vllm"), "has no image for dynamo-vllm"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_an_empty_selection_is_an_error_that_names_near_ones(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(tmp_path / "plan", *arguments, "--concurrencies", "1") == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize(
    ("option", "text"),
    [
        *[("--concurrencies", text) for text in ("1 1", "1, 4 1", "0", "")],
        *[("--scenarios", text) for text in ("1024", "1/2/3", "8/8 8/8", "")],
    ],
)
def test_odd_lists_are_refused(
    option: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        plan(tmp_path / "plan", "--concurrencies", "1", option, text)
    assert stopped.value.code == 2
    assert f"argument {option}: {text!r}" in capsys.readouterr().err


def test_a_used_folder_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    assert plan(tmp_path, *CPU, "--concurrencies", "1") == 2
    assert "is not empty" in capsys.readouterr().err


def rows(count: int, multinode: bool = False) -> list[Any]:
    return [
        {
            "id": f"cell{i}",
            "runner": "r",
            "embedded_engine": False,
            "multinode": multinode,
            "state": "run",
            "estimate": {"minutes": 100.0 - i % 7},
        }
        for i in range(count)
    ]


@pytest.mark.parametrize(("cells", "canary", "parts"), [(300, True, (255, 44)), (2, False, (2, 0))])
def test_the_matrix_splits_below_github_s_limit(
    cells: int, canary: bool, parts: tuple[int, int]
) -> None:
    made = matrix.matrix(rows(cells), canary)
    assert records.schema_problem(made, "matrix") is None
    assert (len(made["batch-1"]), len(made["batch-2"])) == parts
    names = [job["cell"] for name in ("canary", "batch-1", "batch-2") for job in made[name]]
    assert sorted(names) == sorted(row["id"] for row in rows(cells))
    if canary:
        assert made["canary"][0]["cell"] == "cell6", "the cheapest"


@pytest.mark.parametrize(("cells", "multinode"), [(512, False), (256, True)])
def test_more_than_the_workflow_has_room_for_is_an_error(cells: int, multinode: bool) -> None:
    with pytest.raises(errors.UsageError, match="narrow the recipes"):
        matrix.matrix(rows(cells, multinode), canary=True)


def measure(out: Path, cell: str, results: Path) -> Path:
    """Canned results of a planned cell, as its artifact would hold them."""
    folder = results / f"results_{cell}_1"
    folder.mkdir(parents=True)
    shutil.copy(out / "cells" / cell / "plan.json", folder)
    planned = records.read_json(folder / "plan.json")
    for part in planned["cells"]:
        launcher.leave(planned, part, folder)
    return folder


def break_off(folder: Path) -> None:
    (folder / "results_arithmetic_conc4.json").unlink()


def make_stale(folder: Path) -> None:
    planned = records.read_json(folder / "plan.json")
    planned["started"] = "2099-01-01T00:00:00Z"
    records.write_json(folder / "plan.json", planned)


def be_wrong(folder: Path) -> None:
    result = records.read_json(folder / "results_arithmetic_conc4.json")
    result["results"]["arithmetic"]["exact_match,strict-match"] = 0.1
    result["results"]["arithmetic"]["exact_match,flexible-extract"] = 0.1
    records.write_json(folder / "results_arithmetic_conc4.json", result)


def other_commit(folder: Path) -> None:
    planned = records.read_json(folder / "plan.json") | {"commit": "f" * 40}
    records.write_json(folder / "plan.json", planned)


def be_dirty(folder: Path) -> None:
    planned = records.read_json(folder / "plan.json") | {"dirty": True}
    records.write_json(folder / "plan.json", planned)


def lose_the_plan(folder: Path) -> None:
    (folder / "plan.json").write_text("{")


RESUMED = [
    (None, "kept", "measured by run"),
    (be_wrong, "kept", "measured by run"),  # a measured failure is measured
    (break_off, "run", "missing"),
    (make_stale, "run", "stale"),
    (other_commit, "run", "no earlier run at this commit"),
    (be_dirty, "run", "changes that no commit has"),
    (lose_the_plan, "run", "no earlier run at this commit"),
]


@pytest.mark.parametrize(("harm", "state", "reason"), RESUMED)
def test_resume_runs_only_what_is_missing_or_invalid(
    harm: Any, state: str, reason: str, tmp_path: Path, goldens: None
) -> None:
    arguments = (*CPU, "--concurrencies", "1, 4")
    first, second = sweep(tmp_path / "plan", *arguments)["cells"]
    folder = measure(tmp_path / "plan", second["id"], tmp_path / "results")
    if harm:
        harm(folder)
    again = tmp_path / "again"
    resumed = sweep(again, *arguments, "--resume", str(tmp_path / "results"))["cells"]
    assert [row["id"] for row in resumed] == [first["id"], second["id"]]
    assert [row["state"] for row in resumed] == ["run", state]
    assert reason in resumed[1]["reason"]
    assert (again / "kept" / second["id"]).is_dir() == (state == "kept")
    assert (again / "cells" / second["id"]).is_dir() == (state == "run")
    jobs = records.read_json(again / "matrix.json")
    planned = [job["cell"] for name in ("canary", "batch-1") for job in jobs[name]]
    assert planned == [row["id"] for row in resumed if row["state"] == "run"]


def test_resume_of_nothing_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    arguments = (*CPU, "--concurrencies", "1", "--resume", str(tmp_path / "empty"))
    assert plan(tmp_path / "plan", *arguments) == 2
    assert "no plan.json below it" in capsys.readouterr().err


def test_an_estimate_comes_from_the_same_cell_measured_before(
    tmp_path: Path, goldens: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = sweep(tmp_path / "plan", *CPU, "--concurrencies", "4")["cells"]
    folder = measure(tmp_path / "plan", row["id"], tmp_path / "results")
    serving = records.read_json(folder / "serving_conc4.json")
    begun = records.parse_time(serving["finished"]) - 600
    command_line = run_files.server_command(started=records.format_time(begun))
    (folder / "server_command.json").write_text(json.dumps(command_line))
    (folder / "others.json").write_text('{"run": 5}')
    (folder / "more.json").write_text('{"finished": 5}')
    arguments = ("--concurrencies", "4, 8", "--evals", "with", "--past", str(tmp_path / "results"))
    same = sweep(tmp_path / "same", *CPU, "--concurrencies", "4", *arguments[4:])["cells"][0]
    run_id = records.read_json(folder / "plan.json")["run_id"]
    assert same["estimate"]["source"] == f"past run {run_id}"
    assert same["estimate"]["minutes"] == pytest.approx(10, abs=0.2)
    other = sweep(tmp_path / "other", *CPU, *arguments)["cells"]
    assert {one["estimate"]["source"] for one in other} == {"assumed in benchmarks/sweeps.yaml"}
    break_off(folder)
    assert plan(tmp_path / "broken", *CPU, "--concurrencies", "4", *arguments[4:]) == 0
    assert "is left out: NOT_MEASURED" in capsys.readouterr().out


def test_the_facts_of_sweeps_fit_the_tree() -> None:
    known = sweep_cells.facts()
    for row in known["hardware"].values():
        assert (settings.ROOT / "runners" / row["launcher"]).is_file(), row
    stems = [path.stem for path in command.FOLDER.parent.glob("*_node/*.sh")]
    from fnmatch import fnmatchcase

    for topology in known["topologies"][:-1]:
        assert any(fnmatchcase(stem, topology["recipes"]) for stem in stems), topology
