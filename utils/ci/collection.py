"""A sweep's artifacts → one folder per cell, tables over all, and what is missing by name."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path

from utils import errors, records
from utils.ci import cell
from utils.errors import UsageError
from utils.evals import collect_eval_results, validate_scores
from utils.recipes.plan import CELLS, KEPT
from utils.records import Json
from utils.verdicts import Outcome, Verdict, exit_status

ARTIFACT = re.compile(r"results_(?P<cell>.+)_(?P<attempt>[1-9][0-9]*)")
WORDS = {errors.PASS: "PASS", errors.FAIL: "FAIL", errors.NOT_MEASURED: "NOT MEASURED"}


def collect(plan: Path, artifacts: Path, out: Path) -> int:
    """Put every cell of a plan beside the others; one without an artifact is its plan alone.

    Status 0: every cell passed; 1: a measured value failed; 3: something is missing.

    Raises:
        UsageError: the plan can't be used, or OUT is in use.
    """
    sweep = cell.read(plan)
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; name a new folder")
    newest, strange = _newest(artifacts, {row["id"] for row in sweep["cells"]})
    lines, statuses = [], []
    for row in sweep["cells"]:
        source = plan / KEPT / row["id"] if row["state"] == "kept" else newest.get(row["id"])
        folder = out / "cells" / row["id"]
        shutil.copytree(source or plan / CELLS / row["id"], folder)
        verdicts = validate_scores.validate(folder)
        statuses.append(exit_status(verdicts))
        lines.append(_line(row, source is not None, verdicts))
    table_status = collect_eval_results.main([str(out / "cells"), str(out / "tables")])
    status = _status(statuses, table_status)
    lines += [f"- artifact {name} is of no cell of this sweep" for name in strange]
    _summary(out, [_headline(status, statuses), "", *lines])
    return status


def _newest(artifacts: Path, known: set[str]) -> tuple[dict[str, Path], list[str]]:
    """Each cell's artifact of the last attempt; and names that fit no cell."""
    found: dict[str, tuple[int, Path]] = {}
    strange = []
    folders = sorted(artifacts.iterdir()) if artifacts.is_dir() else []
    for folder in folders:
        name = ARTIFACT.fullmatch(folder.name)
        if not name or name["cell"] not in known:
            strange.append(folder.name)
        else:
            attempt = (int(name["attempt"]), folder)
            found[name["cell"]] = max(attempt, found.get(name["cell"], attempt))
    return {cell: folder for cell, (_, folder) in found.items()}, strange


def _line(row: Json, there: bool, verdicts: list[Verdict]) -> str:
    word = WORDS[exit_status(verdicts)]
    if not there:
        return f"- {word} {row['id']}: no artifact: its job didn't run or was lost"
    kept = f" ({row['reason']})" if row["state"] == "kept" else ""
    worst = [v.line() for v in verdicts if v.outcome is not Outcome.PASS]
    return "\n  ".join([f"- {word} {row['id']}: {validate_scores.summary(verdicts)}{kept}", *worst])


def _status(statuses: list[int], table: int) -> int:
    if errors.FAIL in statuses:
        return errors.FAIL
    return errors.PASS if {*statuses, table} == {errors.PASS} else errors.NOT_MEASURED


def _headline(status: int, statuses: list[int]) -> str:
    counts = Counter(WORDS[one] for one in statuses)
    said = ", ".join(f"{counts[word]} {word}" for word in WORDS.values() if counts[word])
    incomplete = " — INCOMPLETE" if errors.NOT_MEASURED in statuses else ""
    return f"# {WORDS[status]}{incomplete}: {len(statuses)} cells, {said}"


def _summary(out: Path, lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    print(text, end="", flush=True)
    text += "\n" + (out / "tables" / "eval_results.md").read_text(encoding="utf-8")
    records.write_text(out / "summary.md", text)
    if step_summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(step_summary).open("a", encoding="utf-8") as file:
            file.write(text)
