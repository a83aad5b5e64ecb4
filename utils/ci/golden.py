"""A golden curve in CI: collect it, and on demand propose it by pull request, merged per key."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from utils import errors, records
from utils.embedded_engine import install
from utils.errors import HarnessError, NotMeasured
from utils.evals import al_record, speedbench
from utils.golden import collection, ledger, rows
from utils.golden.ledger import FILE, MEASURED
from utils.golden.registry import FOLDER
from utils.recipes.settings import ROOT

BOT = ("-c", "user.name=github-actions[bot]", "-c", "user.email=actions@github.com")
BY_GH = ("-c", "credential.helper=!gh auth git-credential")  # the token is never in an argument


def collect(args: argparse.Namespace) -> NoReturn:
    """Prepare a row's prompts, find an engine, become `python3 -m utils.golden collect`.

    Raises:
        UsageError: no such row, or no engine.
    """
    row = rows.load(args.collection)
    prompts = str(args.prompts.absolute())
    asked = ["prepare", "--model-prefix", row.model.prefix, "--output-dir", prompts]
    if status := speedbench.main(asked):
        raise NotMeasured(f"the prompts of {row.name} could not be prepared (status {status})")
    environment = {**os.environ, "SPEEDBENCH_DIR": prompts}
    if not (os.environ.get("ENGINE_PYTHON") or shutil.which("vllm")):
        found = install.engine_environment(os.environ).splitlines()
        environment |= dict(line.split("=", 1) for line in found)
    command = [sys.executable, "-m", "utils.golden", "collect", row.name, *_options(args)]
    os.chdir(ROOT)
    os.execvpe(command[0], command, environment)


def _options(args: argparse.Namespace) -> Iterator[str]:
    """What the collection is told; what follows -- is for the measurement of each cell."""
    yield from ("--output-dir", str(args.output_dir.absolute()), "--hardware", args.hardware)
    yield from ("--repeats", args.repeats)
    for name in ("num_spec_tokens", "thinking"):
        if words := getattr(args, name):
            yield from (f"--{name.replace('_', '-')}", *words)
    yield "--"
    for name in ("category", "output_len"):
        if word := getattr(args, name):
            yield from (f"--{name.replace('_', '-')}", word)


def propose(collected: Path, source: str, branch: str) -> int:
    """Add a collection's runs to the committed curve, key by key, and open a pull request.

    Raises:
        UsageError: the committed curve is of another family, e.g. imported without counts.
        NotMeasured: nothing was measured.
    """
    state = ledger.read(collected / FILE)
    row = rows.load(state["collection"])
    measured = [
        collected / entry["folder"] / _file(entry)
        for entry in state["cells"]
        if entry["outcome"] == MEASURED
    ]
    if not measured:
        raise NotMeasured(f"{collected}: no cell was measured, there is nothing to propose")
    origin = collection.Origin(state["hardware"], source, state["model_revision"])
    said = collection.assemble(measured, FOLDER / row.golden, origin)
    print(said, flush=True)
    _push(FOLDER / row.golden, f"Golden {row.name}: {len(measured)} runs", branch)
    title = f"Golden acceptance lengths of {row.name}"
    _do("gh", "pr", "create", "--head", branch, "--title", title, "--body", f"{source}\n\n{said}\n")
    return errors.PASS


def _file(entry: records.Json) -> str:
    return al_record.file_name(entry["thinking"], entry["num_speculative_tokens"])


def _push(path: Path, message: str, branch: str) -> None:
    _do("git", "switch", "--create", branch)
    _do("git", "add", str(path))
    _do("git", *BOT, "commit", "--message", message)
    _do("git", *BY_GH, "push", "origin", f"HEAD:refs/heads/{branch}")


def _do(*command: str) -> None:
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status:
        raise HarnessError(f"{' '.join(command[:3])} … ended with status {status}")
