"""What every recipe starts, by topology; the dry run; what an environment may not be."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.shell.conftest import BASE, RECIPES, ROOT, TWIN, Run
from utils import models
from utils.recipes import names, rehearsal
from utils.recipes.rehearsal import Rehearsal

ALL = sorted(RECIPES.parent.glob("*_node/*.sh"))
GOLDEN = Path(__file__).parent / "golden"
UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"


@pytest.fixture(scope="module")
def rehearsals() -> dict[Path, list[Rehearsal]]:
    """What each recipe would start, under every plausible topology."""
    found: dict[Path, list[Rehearsal]] = {}
    for row in rehearsal.rehearse_all(ALL):
        found.setdefault(row.recipe, []).append(row)
    return found


def written(row: Rehearsal) -> str:
    """A line: what a dry run prints for `serve` under a topology, or why it refuses."""
    if not row.command:
        return json.dumps({"topology": row.label, "refused": row.error}) + "\n"
    command = {"argv": list(row.command.argv), "env": dict(row.command.env)}
    return json.dumps({"topology": row.label, **command}) + "\n"


@pytest.mark.parametrize("file", ALL, ids=lambda path: path.stem)
def test_every_topology_starts_what_it_did(
    rehearsals: dict[Path, list[Rehearsal]], file: Path
) -> None:
    """UPDATE_GOLDEN=1 writes the files anew."""
    assert [row.error for row in rehearsals[file] if row.error and not row.refused] == []
    text = "".join(written(row) for row in rehearsals[file])
    golden = GOLDEN / "argv" / f"{file.stem}.jsonl"
    if UPDATE:
        golden.write_text(text)
    assert text.splitlines() == golden.read_text().splitlines()


def test_no_golden_without_a_recipe() -> None:
    assert {path.stem for path in (GOLDEN / "argv").iterdir()} == {path.stem for path in ALL}


@pytest.mark.parametrize(
    "name",
    ["dsv4_fp4_b300_vllm_mtp", "glm5.2_fp4_b300_sglang_mtp", "kimik3_fp4_b300_vllm_mtp"],
)
def test_a_rehearsal_says_what_a_dry_run_says(recipe: Run, name: str) -> None:
    file = RECIPES / f"{name}.sh"
    for topology in rehearsal.topologies(file):
        row = rehearsal.rehearse(file, topology)
        model = models.load(names.parse(file.name).model).checkpoint("fp4")
        status = recipe.run(file, **rehearsal.environment(model), **topology)
        if row.command:
            serve = json.loads(recipe.out.splitlines()[0])
            assert serve["argv"] == row.command.argv
            assert serve["env"] == row.command.env
        else:
            assert (status, recipe.err.strip()) == (2, row.error)


def test_an_older_engine_gets_the_old_names(recipe: Run) -> None:
    file = RECIPES / "dsv4_fp4_b200_vllm.sh"
    env = {"TP": "8", "ENGINE_VERSION": "0.27.1"}
    assert '{"use_fp4_indexer_cache": true}' in dry_run(recipe, file, **env)[0]["argv"]


def test_the_library_stays_small() -> None:
    assert len((ROOT / "benchmarks/benchmark_lib.sh").read_text().splitlines()) <= 240


def dry_run(recipe: Run, file: Path, **env: str) -> list[Any]:
    assert recipe.run(file, DRY_RUN="1", **env) == 0, recipe.err
    return [json.loads(line) for line in recipe.out.splitlines()]


@pytest.mark.parametrize("file", [BASE, TWIN], ids=["base", "twin"])
def test_dry_run_prints_the_commands(recipe: Run, file: Path) -> None:
    env = {"RUN_EVAL": "true", "EVAL_CONCURRENT_REQUESTS": "1 8", "PORT": "8888"}
    rows = dry_run(recipe, file, RESULT_DIR="", **env)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    text = text.replace(recipe.environment["HARNESS_PYTHON"], "PYTHON").replace(str(ROOT), "ROOT")
    golden = GOLDEN / f"{file.stem}.jsonl"
    if UPDATE:
        golden.write_text(text)
    assert text == golden.read_text()


def test_dry_run_starts_and_writes_nothing(recipe: Run) -> None:
    dry_run(recipe, TWIN, RUN_EVAL="true")
    assert not recipe.results.exists()
    assert not (recipe.folder / "vllm.log").exists()
    assert recipe.clients() == []
    assert not Path("/tmp/specgate.DRY_RUN").exists()


def test_dry_run_is_quick(recipe: Run) -> None:
    def cpu_s() -> float:  # what the wall clock says on a machine that has nothing else to do
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        dry_run(recipe, TWIN, RUN_EVAL="true")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cpu_s() for _ in range(3)) < 1


def custom(recipe: Run, serve: str, name: str = BASE.name, before: str = "") -> Path:
    """A recipe of a test's own, outside the repository."""
    file = recipe.folder / name
    file.write_text(
        f"set -euo pipefail\nsource {ROOT}/benchmarks/benchmark_lib.sh\n"
        f"require_env MODEL MY_FLAG\n{before}\nserve {serve}\nrun_benchmark_serving\nrun_eval\n"
    )
    return file


@pytest.mark.parametrize("dry", ["0", "1"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("vllm serve m --dtype {DTYPE}", "'{DTYPE}' looks like a variable without its $"),
        ("vllm serve m --dtype '' --port 1", "the argument after '--dtype' is empty"),
        ("A=1", "name the program"),
    ],
)
def test_leftovers_in_a_command_are_refused(
    recipe: Run, words: str, message: str, dry: str
) -> None:
    assert recipe.run(custom(recipe, words), MY_FLAG="1", DRY_RUN=dry) == 2
    assert message in recipe.err
    assert recipe.clients() == []
    assert not (recipe.folder / "vllm.log").exists()


def test_json_arguments_are_no_leftovers(recipe: Run) -> None:
    words = """vllm serve m --x '{"a": {"b": 1}}'"""
    assert dry_run(recipe, custom(recipe, words), MY_FLAG="1")[0]["argv"][-1] == '{"a": {"b": 1}}'


@pytest.mark.parametrize(
    ("name", "before", "message"),
    [
        (BASE.name, "speculate ngram 3", "if and only if it calls speculate"),
        (TWIN.name, "", "if and only if it calls speculate"),
        (TWIN.name, "speculate ngram 3; speculate ngram 3", "once in a recipe"),
        (TWIN.name, "speculate ngram", "say <method> <N>"),
        (TWIN.name, "speculate ngarm 3", "did you mean ngram?"),
        ("my recipe.sh", "", "is not a recipe name"),
        (BASE.name, "engine_env=(ATOM_ENABLE_RELAXED_MTP=1)", "engine_env forces acceptance"),
        (BASE.name, "target=()", "serve: call require_env first"),
    ],
)
def test_misuse_is_refused(recipe: Run, name: str, before: str, message: str) -> None:
    file = custom(recipe, "vllm serve m --port $PORT --served-model-name $MODEL", name, before)
    assert recipe.run(file, MY_FLAG="1") == 2
    assert message in recipe.err
    assert not (recipe.folder / "vllm.log").exists()


def test_a_second_server_is_refused(recipe: Run) -> None:
    serve = "vllm serve m --port $PORT --served-model-name $MODEL"
    assert recipe.run(custom(recipe, f"{serve}\nserve {serve}"), MY_FLAG="1") == 2
    assert "a server was already started" in recipe.err
    assert recipe.alive() == []


def test_an_engine_that_is_nowhere_is_refused(recipe: Run) -> None:
    assert recipe.run(PATH="/usr/bin:/bin") == 2
    assert "vllm is not on the engine's PATH; set ENGINE_PYTHON" in recipe.err


def test_engine_python_comes_first_for_the_engine_alone(recipe: Run) -> None:
    folder = recipe.folder / "engine" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to("/bin/true")
    (folder / "vllm").symlink_to(recipe.environment["PATH"].partition(":")[0] + "/vllm")
    (folder / "engine.py").write_text("raise SystemExit('wrong place')")
    python = str(folder / "python")
    assert recipe.run(PATH="/usr/bin:/bin", ENGINE_PYTHON=python) == 3  # the link's neighbour ran
    environment = (recipe.folder / "vllm.log").read_text()
    assert f"PATH={folder}:/usr/bin:/bin\n" in environment
    assert recipe.read("server_command.json")["engine_python"] == python


@pytest.mark.parametrize(
    ("env", "messages"),
    [
        (
            {"MODEL": "", "TP": "", "MAX_MODEL_LEN": "", "PORT": "0", "RUN_EVAL": "yes"},
            ["set MODEL TP MAX_MODEL_LEN", "PORT is '0'", "RUN_EVAL is 'yes': want true or false"],
        ),
        ({"CONC": "-1", "ISL": "x"}, ["CONC is '-1': want a whole number", "ISL is 'x'"]),
        ({"DP_ATTENTION": "True"}, ["DP_ATTENTION is 'True'"]),
        ({"EVAL_CONCURRENT_REQUESTS": "1 1"}, ["EVAL_CONCURRENT_REQUESTS is '1 1'"]),
        ({"THINKING": "maybe"}, ["THINKING is 'maybe'"]),
        ({"THINKING": "on"}, ["smollm2 has no thinking mode 'on'"]),
        ({"SPEC_DECODING": "eagle33"}, ["SPEC_DECODING is 'eagle33': did you mean eagle3"]),
        ({"SPEC_DECODING": "ngram"}, ["SPEC_DECODING is 'ngram', but"]),
        ({"MODEL_PREFIX": "smolm2"}, ["did you mean smollm2?"]),
        ({"PRECISION": "fp8"}, ["PRECISION is 'fp8', but the recipe's name says 'bf16'"]),
        ({"RESULT_FILENAME": "a/b"}, ["RESULT_FILENAME is 'a/b'"]),
        ({"SYNTHETIC_ACCEPTANCE": "true", "RUN_EVAL": "true"}, ["SYNTHETIC_ACCEPTANCE=true"]),
        ({"SYNTHETIC_ACCEPTANCE": "true", "EVAL_ONLY": "true"}, ["SYNTHETIC_ACCEPTANCE=true"]),
        ({"ENGINE_PYTHON": "/no/such"}, ["ENGINE_PYTHON /no/such is not a program"]),
        ({"PLAN_FILE": "/no/such"}, ["PLAN_FILE /no/such: can't be read"]),
        ({"DRY_RUN": "yes"}, ["DRY_RUN is 'yes'"]),
        ({"ENGINE_VERSION": "latest"}, ["ENGINE_VERSION is 'latest': want a version"]),
        ({"CONC": "4 4"}, ["CONC is '4 4': want distinct whole numbers"]),
        ({"SERVING_CLIENT": "vllm"}, ["SERVING_CLIENT is 'vllm': known: aiperf, specgate"]),
        ({"LOSSLESS": "1"}, ["LOSSLESS is '1': want true or false"]),
        ({"RUN_EVALS": "true"}, ["RUN_EVALS means nothing here, did you mean RUN_EVAL?"]),
        ({"DRYRUN": "1"}, ["did you mean DRY_RUN?"]),
        ({"Run_Eval": "true"}, ["did you mean RUN_EVAL?"]),
        ({"PP_SIZE": "2"}, ["PP_SIZE is '2', this recipe has '1'"]),
        ({"FRAMEWORK": "sglang"}, ["FRAMEWORK is 'sglang', this recipe has 'vllm'"]),
        ({"DISAGG": "true"}, ["DISAGG is 'true', this recipe has 'false'"]),
        ({"EVAL_FRAMEWORK": "swebench"}, ["EVAL_FRAMEWORK is 'swebench'"]),
        ({"MODEL_PATH": "/no/such"}, ["MODEL_PATH /no/such isn't there"]),
        ({"MODEL_PATH": "~/models"}, ["MODEL_PATH ~/models isn't there"]),
        ({"RESULT_DIR": "/proc/new"}, ["RESULT_DIR /proc/new: "]),
        ({"HARNESS_PYTHON": "/no/such"}, ["HARNESS_PYTHON /no/such is no program"]),
        ({"LOSSLESS": "true", "RUN_EVAL": "false"}, ["LOSSLESS=true without evals"]),
        ({"SLO": "ttft=1"}, ["SLO has 'ttft=1': want each of ttft_s, tpot_s, e2e_s"]),
    ],
)
def test_a_bad_environment_is_refused(
    recipe: Run, env: dict[str, str], messages: list[str]
) -> None:
    assert recipe.run(**env) == 2
    for message in messages:
        assert message in recipe.err
    assert len(recipe.err.splitlines()) == 1
    assert not (recipe.folder / "vllm.log").exists()


def test_what_other_ci_sets_of_this_very_recipe_is_taken(recipe: Run) -> None:
    row = {"PP_SIZE": "1", "FRAMEWORK": "vllm", "DISAGG": "false", "MODELS": "x", "TMP": "/tmp"}
    dry_run(recipe, BASE, **row)


def test_a_folder_with_earlier_results_is_refused(recipe: Run) -> None:
    assert recipe.run(RUN_EVAL="true") == 0, recipe.err
    before = {path: path.read_bytes() for path in recipe.results.iterdir()}
    assert recipe.run(RUN_EVAL="true") == 2
    assert f"RESULT_DIR {recipe.results} holds an earlier run's results" in recipe.err
    assert {path: path.read_bytes() for path in recipe.results.iterdir()} == before


def test_a_python_without_our_packages_is_refused_before_anything_starts(recipe: Run) -> None:
    """`-S` leaves out all that isn't the standard library's."""
    python = recipe.folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    assert recipe.run(HARNESS_PYTHON=str(python)) == 2
    assert "lacks requests aiohttp prometheus_client jsonschema PyYAML: pip install" in recipe.err


def test_a_dry_run_needs_yaml_alone(recipe: Run) -> None:
    python = recipe.folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    assert recipe.run(HARNESS_PYTHON=str(python), DRY_RUN="1") == 2
    assert "lacks PyYAML: pip install" in recipe.err


def test_an_old_python_is_refused_before_it_meets_newer_syntax() -> None:
    old = "import sys; sys.version_info = (3, 9, 18); import utils.recipes.settings"
    done = subprocess.run(
        [sys.executable, "-c", old], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "older than 3.10: set HARNESS_PYTHON" in done.stderr


SERVE = 'serve vllm serve "$MODEL_PATH" --port "$PORT" --served-model-name "$MODEL"'


@pytest.mark.parametrize(
    ("lines", "status", "message"),
    [
        (["require_env MODEL", 'serve vllm "$NOPE"'], 2, "NOPE: unbound variable"),
        (["require_env MODEL", "servee vllm"], 2, "servee: command not found"),
        (["run_benchmark_serving"], 2, "run_benchmark_serving: call serve first"),
        (["require_env MODEL", "run_eval"], 2, "run_eval: call serve first"),
        ([], 3, "nothing was measured"),
        (["require_env MODEL", SERVE], 3, "nothing was measured"),
        (["require_env MODEL", SERVE, "run_benchmark_serving"], 3, "failed: run_eval"),
        (["require_env MODEL", SERVE, "run_benchmark_serving", "run_evla"], 3, "run_evla: command"),
        (["require_env MODEL", SERVE, "run_eval", "[[ $CONC == 8 ]]"], 3, "ready after"),
    ],
)
def test_a_broken_recipe_neither_passes_nor_fails(
    recipe: Run, lines: list[str], status: int, message: str
) -> None:
    """bash ends with 1 for half of these: that is the gate's, for a value that was measured."""
    file = recipe.folder / BASE.name
    library = f"source {ROOT}/benchmarks/benchmark_lib.sh"
    file.write_text("\n".join(["set -euo pipefail", library, *lines, ""]))
    assert recipe.run(file, RUN_EVAL="true") == status
    assert message in recipe.err
    assert recipe.alive() == []


def test_several_concurrencies_are_one_benchmark_and_a_cell_each(recipe: Run) -> None:
    assert recipe.run(CONC="1 8", RUN_EVAL="true") == 0, recipe.err
    (bench,) = [row["argv"] for row in recipe.client_log() if row["client"] == "bench"]
    start = bench.index("--concurrency")
    assert bench[start : start + 4] == ["--concurrency", "1", "8", "--client"]
    assert bench[-1].endswith("/serving_smollm2_bf16_cpu_vllm_isl128_osl64.json")
    cells = recipe.read("plan.json")["cells"]
    assert [(c["kind"], c["concurrency"]) for c in cells] == [
        ("score", 8),
        ("throughput", 1),
        ("throughput", 8),
    ]
    assert recipe.read("meta_env.json")["conc"] == 8


def test_the_second_client_and_limits_are_handed_on(recipe: Run) -> None:
    assert recipe.run(SERVING_CLIENT="aiperf", SLO="ttft_s=1 tpot_s=0.1") == 0, recipe.err
    (bench,) = [row["argv"] for row in recipe.client_log() if row["client"] == "bench"]
    assert bench[bench.index("--client") + 1] == "aiperf"
    assert "--slo=ttft_s=1 tpot_s=0.1" in bench


@pytest.mark.parametrize(("lossless", "greedy"), [("true", ["greedy"]), ("false", [])])
def test_greedy_outputs_are_written_when_asked_for(
    recipe: Run, lossless: str, greedy: list[str]
) -> None:
    assert recipe.run(RUN_EVAL="true", LOSSLESS=lossless) == 0, recipe.err
    assert [name for name in recipe.clients() if name == "greedy"] == greedy


def test_no_new_folder_under_workspace(recipe: Run) -> None:
    folder = Path("/workspace") / recipe.folder.name / str(recipe.port)
    assert recipe.run(RESULT_DIR=str(folder)) == 2
    assert f"RESULT_DIR {folder} would be a new folder under /workspace" in recipe.err
    assert not folder.exists()


def test_the_twin_refuses_another_label(recipe: Run) -> None:
    assert recipe.run(TWIN, SPEC_DECODING="mtp") == 2
    assert "SPEC_DECODING is 'mtp', but this recipe speculates with 'ngram'" in recipe.err


def test_synthetic_acceptance_keeps_the_engines_settings(recipe: Run) -> None:
    env = {"SYNTHETIC_ACCEPTANCE": "true", "SGLANG_SIMULATE_ACC_LEN": "2.5"}
    assert recipe.run(**env) == 0, recipe.err
    assert "SGLANG_SIMULATE_ACC_LEN=2.5\n" in (recipe.folder / "vllm.log").read_text()
    assert recipe.read("plan.json")["synthetic_acceptance"] is True


def test_a_plan_written_before_is_used(recipe: Run) -> None:
    assert recipe.run(RUN_EVAL="true") == 0
    plan = recipe.read("plan.json")
    plan["run_id"] = "from-ci"
    given = recipe.folder / "given.json"
    given.write_text(json.dumps(plan))
    shutil.rmtree(recipe.results)
    assert recipe.run(RUN_EVAL="true", PLAN_FILE=str(given)) == 0, recipe.err
    assert recipe.read("plan.json") == plan
    assert recipe.read("meta_env.json")["run_id"] == "from-ci"
    shutil.rmtree(recipe.results)
    assert recipe.run(RUN_EVAL="true", CONC="5", PLAN_FILE=str(given)) == 2
    assert "is the plan of another run: cells" in recipe.err


@pytest.mark.parametrize("options", ["-eo pipefail", "-uo pipefail", "-eu"])
def test_the_library_refuses_a_caller_without_strict_mode(options: str) -> None:
    script = f"set {options}; source {ROOT}/benchmarks/benchmark_lib.sh; echo went on"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "set -euo pipefail" in done.stderr
    assert "went on" not in done.stdout


def test_a_result_folder_is_made_when_none_is_given(recipe: Run) -> None:
    assert recipe.run(RESULT_DIR="") == 0, recipe.err
    found = re.search(r"results in (/tmp/specgate\.\w+)", recipe.err)
    assert found
    assert (Path(found[1]) / "plan.json").exists()
    for file in Path(found[1]).iterdir():
        file.unlink()
    Path(found[1]).rmdir()
