"""plan.json: what a run was asked for, and the cells that must come back from it."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from utils import errors, models, records
from utils.errors import NotMeasured, UsageError
from utils.recipes import commit, settings
from utils.recipes.settings import Settings
from utils.recipes.speculation import Speculation, parse
from utils.records import Json

# A plan that CI wrote must be the plan of this recipe in this environment.
MUST_AGREE = (
    "recipe",
    "model",
    "model_prefix",
    "precision",
    "hw",
    "engine",
    "spec_decoding",
    "num_speculative_tokens",
    "draft_model",
    "draft_sample_method",
    "rejection_sample_method",
    "topology",
    "synthetic_acceptance",
    "cells",
)


def load_speculation(asked: Settings, words: Sequence[str]) -> Speculation | None:
    """What the recipe said to `speculate`, None when it didn't; no label may say otherwise.

    Raises:
        UsageError: the file name or SPEC_DECODING disagrees with the recipe.
    """
    method = words[0] if words else "none"
    if asked.name.speculative != bool(words):
        raise UsageError(
            f"{asked.recipe.name}: a recipe is named ..._mtp.sh if and only if it calls speculate"
        )
    label = asked.values.get("SPEC_DECODING", method)
    if label != method:
        raise UsageError(
            f"SPEC_DECODING is {label!r}, but {asked.recipe.name} speculates with {method!r};"
            " unset it, the recipe says which"
        )
    if not words:
        return None
    return parse(asked.name.engine_family, words[0], words[1], words[2:])


def make(asked: Settings, speculation: Speculation | None) -> Json:
    """The plan of one run, without its identity (see `stamp`)."""
    data_parallel = asked["TP"] if asked["DP_ATTENTION"] else asked["DP_SIZE"]
    return {
        "schema": "plan/1",
        "recipe": asked.recipe_label,
        "model": asked["MODEL"],
        "model_path": asked["MODEL_PATH"],
        "model_prefix": asked["MODEL_PREFIX"],
        "precision": asked.name.precision,
        "hw": asked.name.hw,
        "engine": asked.name.engine,
        "spec_decoding": speculation.method if speculation else "none",
        "num_speculative_tokens": speculation.num_tokens if speculation else None,
        "draft_model": speculation.text("draft_model") if speculation else None,
        "draft_sample_method": speculation.text("draft_sample_method") if speculation else None,
        "rejection_sample_method": (
            speculation.text("rejection_sample_method") if speculation else None
        ),
        "topology": {
            "tp": asked["TP"],
            "ep_size": asked["EP_SIZE"],
            "dp_attention": asked["DP_ATTENTION"],
            "engines": data_parallel,
        },
        "synthetic_acceptance": asked["SYNTHETIC_ACCEPTANCE"],
        "cells": _cells(asked, speculation),
    }


def _cells(asked: Settings, speculation: Speculation | None) -> list[Json]:
    cells: list[Json] = []
    if asked.collects and speculation:
        return [_al_cell(asked, speculation)]
    if asked.evals:
        cells += [
            {"kind": "score", "task": task, "concurrency": concurrency}
            for concurrency in asked["EVAL_CONCURRENT_REQUESTS"]
            for task in models.load(asked["MODEL_PREFIX"]).eval_tasks
        ]
    if asked.evals and speculation:
        cells.append(_al_cell(asked, speculation))
    if not asked["EVAL_ONLY"]:
        lengths = {"isl": asked["ISL"], "osl": asked["OSL"]}
        cells += [{"kind": "throughput", **lengths, "concurrency": c} for c in asked["CONC"]]
    return cells


def _al_cell(asked: Settings, speculation: Speculation) -> Json:
    n = speculation.num_tokens
    return {"kind": "al", "thinking": asked["THINKING"], "num_speculative_tokens": n}


def stamp(plan: Json) -> Json:
    """Give a plan its identity: run id, commit and time."""
    now = datetime.now(timezone.utc)
    return plan | {
        "run_id": f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}",
        "commit": commit.commit(settings.ROOT),
        "dirty": commit.dirty(settings.ROOT),
        "started": records.format_time(now.timestamp()),
    }


def adopt(path: Path, wanted: Json) -> Json:
    """The plan that CI wrote, if it is a plan of this very run.

    Raises:
        UsageError: it can't be read, breaks the schema, or asks for something else.
    """
    try:
        plan: Json = records.read_json(path, "plan")
    except NotMeasured as error:
        raise UsageError(f"PLAN_FILE {error}") from error
    differing = [
        f"{key} {plan[key]!r} there, {wanted[key]!r} here"
        for key in MUST_AGREE
        if plan[key] != wanted[key]
    ]
    if differing:
        raise UsageError(f"PLAN_FILE {path} is the plan of another run: {'; '.join(differing)}")
    return plan | {"model_path": wanted["model_path"]}  # known only where it runs


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="utils.recipes.run_plan", description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("speculation", nargs="*", metavar="method N key=value")
    options = parser.parse_args(argv)
    asked = settings.load(options.recipe, os.environ)
    plan = make(asked, load_speculation(asked, options.speculation))
    if asked["DRY_RUN"] == "1":
        return errors.PASS
    given = os.environ.get("PLAN_FILE")
    plan = adopt(Path(given), plan) if given else stamp(plan)
    records.write_json(Path(asked["RESULT_DIR"]) / "plan.json", plan, "plan")
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
