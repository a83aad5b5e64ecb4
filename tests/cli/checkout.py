"""A copy of the tree to rehearse a dispatch in, with a launcher that measures nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from utils.embedded_engine import layout, steps

ROOT = Path(__file__).parents[2]


def make(folder: Path) -> Path:
    """A copy whose local launcher leaves canned results, and with the goldens of these."""
    copy(folder)
    goldens = folder / "benchmarks" / "golden_al"
    shutil.rmtree(goldens)
    shutil.copytree(ROOT / "tests" / "result_dirs" / "golden", goldens)
    launcher = folder / "runners" / "launch_local.sh"
    launcher.rename(launcher.with_name("launch_real.sh"))
    launcher.write_text(f'exec "{sys.executable}" tests/fakes/launcher.py "$@"\n')
    commit(folder)
    return folder


def copy(folder: Path) -> None:
    """The tree as it is, without most tests, and an environment that counts as set up."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, listed):
        source = ROOT / name
        if name.startswith("tests/") and not name.startswith(("tests/fakes/", CANNED)):
            continue
        if source.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
    _environment(folder)


def commit(folder: Path) -> None:
    """What is in the folder becomes a commit, so that its plans are of one."""
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for words in (["init", "-q"], ["add", "--all"], ["commit", "-q", "--message", "copy"]):
        subprocess.run([*git, *words], check=True)


def _environment(folder: Path) -> None:
    """This checkout's packages, as an environment that set-up takes for the copy's own."""
    own = layout.harness(folder)
    own.folder.mkdir()
    for path in (ROOT / ".venv").iterdir():
        if path.name != steps.COMPLETE:
            (own.folder / path.name).symlink_to(path)
    steps.mark(own, steps.COMPLETE, {})


CANNED = "tests/result_dirs/pass/planned_run/"


def twin(
    folder: Path, work: Path, *inputs: str, workflow: str = "e2e-tests", **environment: str
) -> subprocess.Popen[str]:
    """Start a rehearsal in a copy."""
    command = [sys.executable, "-m", "utils.ci", "run", workflow, "--work", str(work)]
    for pair in inputs:
        command += ["-f", pair]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
