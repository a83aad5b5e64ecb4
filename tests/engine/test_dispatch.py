"""A dispatch of the CPU recipe, rehearsed whole: plan, real engine, gate, artifacts, collection."""

from __future__ import annotations

from pathlib import Path

from tests.cli import checkout
from tests.engine.server import Embedded, free_port
from utils import records

CELL = "smollm2_bf16_cpu_vllm_mtp_tp1-ep1_isl128-osl32_conc1-4_evals-only-1-4_thinking-off"


def test_a_dispatch_of_the_cpu_recipe_is_green(
    engine: Embedded, prompts: Path, tmp_path: Path
) -> None:
    tree, work = tmp_path / "tree", tmp_path / "work"
    tree.mkdir()
    checkout.copy(tree)
    checkout.commit(tree)
    environment = {"PORT": str(free_port()), "SPEEDBENCH_DIR": str(prompts.parent)}
    twin = checkout.twin(tree, work, "conc=1 4", "mtp=on", "evals=only", **environment)
    output, _ = twin.communicate()
    assert twin.returncode == 0, output
    assert "# PASS: 1 cells, 1 PASS" in output
    results = work / "artifacts" / f"results_{CELL}_1"
    kept = {path.name for path in results.iterdir()}
    assert kept >= {"plan.json", "server.log", "summary.md", "junit.xml", "report.html"}
    meta = records.read_json(results / "meta_env.json")
    assert (meta["eval_concs"], meta["completed_eval_concs"]) == ([1, 4], [1, 4])
    assert meta["failed_eval_concs"] == []
    record = records.read_json(results / "results_speedbench_al_off_mtp3.json")
    plan = records.read_json(work / "artifacts/sweep-plan_1/cells" / CELL / "plan.json")
    assert record["run"]["run_id"] == plan["run_id"]
    table = records.read_json(work / "artifacts/collected_1/tables/eval_results.json")
    assert (table["complete"], len(table["rows"])) == (True, 3)
