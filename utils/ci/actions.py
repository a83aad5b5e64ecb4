"""Local stand-ins of the actions that our workflows use; artifacts are folders."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from utils.errors import UsageError
from utils.recipes import commit

_NOT_IN_A_NAME = re.compile(r'["<>:|*?\\/\r\n]')


class StepFailed(Exception):
    """An action that would be red on GitHub; its text says why."""


@dataclass(frozen=True)
class Place:
    """Where a run happens: the checkout, and the folder of its artifacts."""

    workspace: Path
    artifacts: Path


def run(uses: str, given: Mapping[str, Any], place: Place) -> None:
    """Do what an action would.

    Raises:
        UsageError: there is no stand-in for it, or it is given what the stand-in doesn't know.
        StepFailed: it would fail on GitHub.
    """
    name = uses.partition("@")[0]
    if name not in ACTIONS:
        raise UsageError(f"the twin has no stand-in for {name}; it has {', '.join(ACTIONS)}")
    known, action = ACTIONS[name]
    if unknown := set(given) - known:
        raise UsageError(f"the twin's {name} doesn't know {', '.join(sorted(unknown))}")
    action(given, place)


def _checkout(given: Mapping[str, Any], place: Place) -> None:
    """The tree as it is; another commit is for the person to check out."""
    ref = given.get("ref", "")
    here = commit.commit(place.workspace)
    if ref not in ("", here, "HEAD") and _commit_of(str(ref), place.workspace) != here:
        raise UsageError(
            f"checkout of {ref}: the twin runs the tree as it is, at {here}; check that out first"
        )


def _commit_of(ref: str, workspace: Path) -> str:
    command = ["git", "-C", str(workspace), "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _setup_python(given: Mapping[str, Any], _: Place) -> None:
    wanted = tuple(map(int, str(given["python-version"]).split(".")))
    if sys.version_info[: len(wanted)] < wanted:
        raise UsageError(f"setup-python wants {given['python-version']}, this is {sys.version}")


def _upload(given: Mapping[str, Any], place: Place) -> None:
    name, source = str(given["name"]), Path(given["path"])
    target = place.artifacts / name
    if _NOT_IN_A_NAME.search(name):
        raise StepFailed(f"{name!r} can't be an artifact's name")
    if target.exists():
        raise StepFailed(f"409: an artifact named {name} already exists on this run")
    if not (source.is_dir() and any(source.iterdir())):
        raise StepFailed(f"no files were found in {source}")
    shutil.copytree(source, target, ignore=_hidden)  # GitHub leaves hidden files out too
    print(f"artifact: {target}", flush=True)


def _hidden(_: Any, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(".")]


def _download(given: Mapping[str, Any], place: Place) -> None:
    """One by name into the path, or all of a pattern into a folder each."""
    other, target = given.get("run-id", ""), Path(given["path"])
    artifacts = Path(str(other)) / "artifacts" if other else place.artifacts
    if other and not artifacts.is_dir():
        raise UsageError(f"there is no local run {other}: name the folder of an earlier one")
    if "name" in given:
        source = artifacts / str(given["name"])
        if not source.is_dir():
            raise StepFailed(f"artifact not found: {given['name']}")
        shutil.copytree(source, target, dirs_exist_ok=True)
        return
    for folder in sorted(artifacts.iterdir()):
        if fnmatchcase(folder.name, str(given["pattern"])):
            shutil.copytree(folder, target / folder.name)


Action = Callable[[Mapping[str, Any], Place], None]
ACTIONS: Mapping[str, tuple[set[str], Action]] = {
    "actions/checkout": ({"ref", "persist-credentials"}, _checkout),
    "actions/setup-python": ({"python-version"}, _setup_python),
    "actions/upload-artifact": ({"name", "path", "if-no-files-found", "retention-days"}, _upload),
    "actions/download-artifact": (
        {"name", "pattern", "path", "run-id", "github-token"},
        _download,
    ),
}
