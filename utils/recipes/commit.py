"""Which commit this checkout is at, read from .git: engine images often have no git."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

UNKNOWN = "unknown"


def commit(root: Path) -> str:
    """What `git rev-parse HEAD` says, or "unknown"."""
    try:
        return _resolve(_git_dir(root), "HEAD")
    except (OSError, UnicodeDecodeError):
        return UNKNOWN


def _git_dir(root: Path) -> Path:
    folder = root / ".git"
    if folder.is_file():  # a linked worktree: "gitdir: <path>"
        folder = root / folder.read_text(encoding="utf-8").partition(":")[2].strip()
    return folder


def _resolve(git: Path, name: str) -> str:
    common = git / "commondir"
    shared = git / common.read_text(encoding="utf-8").strip() if common.is_file() else git
    for folder in (git, shared):
        if (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8").strip()
            return _resolve(git, text[5:]) if text.startswith("ref: ") else text
    for line in (shared / "packed-refs").read_text(encoding="utf-8").splitlines():
        if line.endswith(f" {name}"):
            return line.split()[0]
    return UNKNOWN


def dirty(root: Path) -> bool | None:
    """Do tracked files differ from the commit? None when git can't say."""
    git = shutil.which("git")
    if not git:
        return None
    command = [git, "-C", str(root), "status", "--porcelain", "--untracked-files=no"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return bool(done.stdout.strip()) if done.returncode == 0 else None
