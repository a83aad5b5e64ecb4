"""launch_local.sh: which engine, which defaults, and that the recipe takes its place."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.shell.conftest import FAKES, ROOT, TWIN, Run

LAUNCH = ROOT / "runners" / "launch_local.sh"
OPTIONAL = ("MODEL", "TP", "CONC", "ISL", "OSL", "MAX_MODEL_LEN", "RESULT_DIR")


def bare(recipe: Run) -> None:
    for name in OPTIONAL:
        del recipe.environment[name]


def test_runs_a_recipe_by_name_with_defaults(recipe: Run) -> None:
    bare(recipe)
    env = {"RESULT_DIR": str(recipe.results), "SPEEDBENCH_DIR": str(recipe.folder / "prompts")}
    assert recipe.run(LAUNCH, TWIN.stem, **env) == 0, recipe.err
    assert recipe.clients()[0] == "speedbench"
    argv = recipe.client_log()[0]["argv"]
    assert argv[2:] == [
        "prepare",
        "--model-prefix",
        "smollm2",
        "--output-dir",
        env["SPEEDBENCH_DIR"],
    ]
    assert recipe.clients()[-1] == "report"
    assert f"results: {recipe.results}" in recipe.out
    cells = recipe.read("plan.json")["cells"]
    assert {cell["kind"] for cell in cells} == {"score", "al", "throughput"}


def test_what_the_caller_set_stays(recipe: Run) -> None:
    assert recipe.run(LAUNCH, str(TWIN), RUN_EVAL="false", CONC="2") == 0, recipe.err
    assert recipe.read("plan.json")["cells"] == [
        {"kind": "throughput", "isl": 128, "osl": 64, "concurrency": 2}
    ]


def test_takes_the_embedded_engine_when_there_is_no_other(recipe: Run) -> None:
    told = {
        "install": {
            "print": f"ENGINE_PYTHON={FAKES}/bin/python\nMODEL_PATH=/models/smollm2",
            "status": 0,
        }
    }
    recipe.environment["PATH"] = "/usr/bin:/bin"
    assert recipe.run(LAUNCH, TWIN.stem, clients=told) == 2
    assert recipe.clients() == ["install", "speedbench", "recipes"]
    assert "ENGINE_PYTHON" in recipe.err  # the fake has no such program, so the recipe refuses


def test_an_installer_that_fails_ends_it(recipe: Run) -> None:
    recipe.environment["PATH"] = "/usr/bin:/bin"
    assert recipe.run(LAUNCH, TWIN.stem, clients={"install": {"status": 2}}) == 2
    assert recipe.clients() == ["install"]


@pytest.mark.parametrize(("doctor", "expected"), [(0, 0), (3, 3), (2, 2), (1, 3)])
def test_the_node_is_looked_at_before_anything_starts(
    recipe: Run, doctor: int, expected: int
) -> None:
    told = {"recipes": {"status": doctor}}
    assert recipe.run(LAUNCH, TWIN.stem, clients=told, RUN_EVAL="false") == expected
    (argv,) = [row["argv"] for row in recipe.client_log() if row["client"] == "recipes"]
    assert argv[1:] == ["utils.recipes", "doctor", "--lenient", str(TWIN)]
    assert ("bench" in recipe.clients()) == (expected == 0)


def test_defaults_and_the_embedded_engine_are_for_cpu_recipes_alone(recipe: Run) -> None:
    """Else SmolLM2 would be served with the flags of a large model, and judged as one."""
    bare(recipe)
    recipe.environment["PATH"] = "/usr/bin:/bin"
    assert recipe.run(LAUNCH, "dsr1_fp8_b200_sglang") == 2
    assert "set MODEL TP ISL OSL MAX_MODEL_LEN CONC" in recipe.err
    assert "install" not in recipe.clients()


def test_an_unknown_recipe_is_refused(recipe: Run) -> None:
    assert recipe.run(LAUNCH, "nosuch") == 2
    assert "there is no recipe" in recipe.err


def test_dry_run_needs_no_engine(recipe: Run) -> None:
    bare(recipe)
    recipe.environment["PATH"] = "/usr/bin:/bin"
    assert recipe.run(LAUNCH, TWIN.stem, DRY_RUN="1") == 0, recipe.err
    assert json.loads(recipe.out.partition("\n")[0])["step"] == "serve"
    assert recipe.clients() == []


def test_a_cancel_reaches_the_recipe(recipe: Run) -> None:
    run = recipe.start(LAUNCH, TWIN.stem, clients={"bench": {"linger_s": 60}})
    recipe.wait_until(lambda: "bench" in recipe.clients())
    run.send_signal(signal.SIGINT)
    assert run.wait(9) == 130
    assert recipe.alive() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_cancel_while_preparing(recipe: Run, number: signal.Signals) -> None:
    run = recipe.start(LAUNCH, TWIN.stem, clients={"speedbench": {"linger_s": 60}})
    recipe.wait_until(recipe.clients)
    started = time.monotonic()
    run.send_signal(number)
    assert run.wait(9) == -number
    recipe.wait_until(lambda: not recipe.alive(), 7.5 - (time.monotonic() - started))
