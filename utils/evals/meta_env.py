"""meta_env.json: which run the eval results beside it belong to, and which points came back."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from utils import errors, records
from utils.records import Json


def summarize(plan: Json, *, isl: int, osl: int, conc: int, completed: Sequence[int]) -> Json:
    """The summary of a run from its plan; a planned point that isn't completed has failed."""
    topology = plan["topology"]
    planned = [cell["concurrency"] for cell in plan["cells"] if cell["kind"] == "score"]
    points = list(dict.fromkeys(planned))
    summary: Json = {
        "infmax_model_prefix": plan["model_prefix"],
        "model": plan["model"],
        "framework": plan["engine"],
        "precision": plan["precision"],
        "hw": plan["hw"],
        "spec_decoding": plan["spec_decoding"],
        "tp": topology["tp"],
        "ep": topology["ep_size"],
        "dp_attention": topology["dp_attention"],
        "conc": points[0] if len(points) == 1 else conc,
        "isl": isl,
        "osl": osl,
        "run_id": plan["run_id"],
        "started": plan["started"],
        "finished": records.utc_now(),
    }
    if len(points) > 1:
        summary["eval_concs"] = points
        summary["completed_eval_concs"] = [point for point in points if point in completed]
        summary["failed_eval_concs"] = [point for point in points if point not in completed]
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="utils.evals.meta_env", description=__doc__)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--isl", type=int, required=True)
    parser.add_argument("--osl", type=int, required=True)
    parser.add_argument("--conc", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("completed", type=int, nargs="*", help="concurrencies that came back")
    options = parser.parse_args(argv)
    summary = summarize(
        records.read_json(options.plan, "plan"),
        isl=options.isl,
        osl=options.osl,
        conc=options.conc,
        completed=options.completed,
    )
    records.write_json(options.output, summary, "meta_env")
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
