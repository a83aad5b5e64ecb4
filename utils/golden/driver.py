"""Collect a golden curve: a fresh server for each cell, by the same lifecycle as a recipe's.

A cell that was measured is looked at again, not measured again, so a collection that was killed
goes on where it ended. Whatever a cell left behind, its logs and outputs, is kept.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from utils import errors, models
from utils.errors import UsageError
from utils.evals.prompt_files import prepared_path, read_prompts
from utils.golden import collection, compare, lint, registry, rows
from utils.golden.cells import Cell
from utils.golden.ledger import LOG, MEASURED, Ledger, Order
from utils.progress import Progress as Bar
from utils.recipes import settings
from utils.records import Json
from utils.serving import supervise

# Of a recipe's variables these are the caller's; the others are the row's or the driver's.
CALLERS = (
    *("MODEL_PATH", "SPEEDBENCH_DIR", "PORT", "ENGINE_VERSION", "SERVER_READY_TIMEOUT_S"),
    "DRY_RUN",
)
STOP_S = 10.0


def collect(order: Order) -> int:
    """Measure every cell that isn't measured yet; then the candidate and what it changes.

    Raises:
        UsageError: the prompts are missing, the folder is another collection's, or a cell's
            configuration can't be used, which the next cells would share.
    """
    _check_prompts(order.row)
    ledger = Ledger(order)
    due = [cell for cell in order.cells if not _kept(ledger, cell)]
    with Bar("collection", len(due), every_s=0) as shown:
        for cell in due:
            folder = ledger.begin(cell)
            print(f"{cell}: attempt {ledger.entry(cell)['attempts']} in {folder}", flush=True)
            status = run(order, cell, folder)
            if status == errors.USAGE:
                raise UsageError(f"{cell}: {ledger.last_words(ledger.entry(cell))}")
            print(line(cell, ledger.judge(cell)), flush=True)
            shown.step()
    return finish(ledger)


def _kept(ledger: Ledger, cell: Cell) -> bool:
    """Whether an earlier call measured it, by its record."""
    if ledger.entry(cell)["outcome"] != MEASURED:
        return False
    entry = ledger.judge(cell)
    print(f"{line(cell, entry)}, kept from an earlier call", flush=True)
    return bool(entry["outcome"] == MEASURED)


def _check_prompts(row: rows.Row) -> None:
    prompt_set = row.model.prompt_set
    read_prompts(prepared_path(models.prompts_dir(), prompt_set), prompt_set.category)


def dry_run(order: Order) -> int:
    """Print the commands of every cell as JSON lines, start nothing."""
    for cell in order.cells:
        argv = ["bash", str(rows.CELL), *order.options]
        done = subprocess.run(argv, env=environment(order, cell, None), check=False)
        if done.returncode:
            return done.returncode
    return errors.PASS


def run(order: Order, cell: Cell, folder: Path) -> int:
    """One attempt; its exit status. Whatever it started has ended by then, however this ends."""
    argv = ["bash", str(rows.CELL), *order.options]
    command = supervise.command_line(argv, log=folder / LOG)
    child = subprocess.Popen(command, env=environment(order, cell, folder))
    try:
        return child.wait()
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait(STOP_S)


def environment(order: Order, cell: Cell, folder: Path | None) -> Mapping[str, str]:
    """The caller's, without what the row or the driver says; it must not reach a cell."""
    ours = {*settings.VARIABLES, "PLAN_FILE"} - {*CALLERS}
    return {
        **{name: value for name, value in os.environ.items() if name not in ours},
        "COLLECTION": order.row.name,
        "NUM_SPEC_TOKENS": str(cell.num_speculative_tokens),
        "THINKING": cell.thinking,
        **({"RESULT_DIR": str(folder)} if folder else {}),
    }


def line(cell: Cell, entry: Json) -> str:
    if entry["outcome"] != MEASURED:
        return f"{cell}: N/A {entry['reason']}: {entry['detail']}"
    return f"{cell}: AL {entry['acceptance_length']:.4f} in {entry['steps']} steps"


def finish(ledger: Ledger) -> int:
    """Write the candidate, compare it, count what is missing."""
    order, measured = ledger.order, list(ledger.measured())
    if measured:
        output = order.folder / "candidate" / order.row.golden
        output.unlink(missing_ok=True)
        made = collection.Origin(
            order.hardware,
            f"python3 -m utils.golden collect {order.row.name}",
            order.model_revision,
        )
        collection.assemble([ledger.record_path(entry) for entry in measured], output, made)
        print(f"candidate: {output}")
        print(compare.table(output, order.row.golden))
        for warning in lint.warnings([output], list(registry.read(output))):
            print(f"warning: {warning}")
    missing = [entry for entry in ledger.data["cells"] if entry["outcome"] != MEASURED]
    print(f"{len(measured)} cells measured, {len(missing)} not available")
    return errors.NOT_MEASURED if missing else errors.PASS
