"""What every environment is filled with: a virtual environment, and packages by their locks."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

from utils.embedded_engine import layout
from utils.embedded_engine.layout import Target
from utils.embedded_engine.steps import Work
from utils.errors import UsageError

ENGINE_PYTHONS = ((3, 11), (3, 14))
# Byte code of the fifth of the modules that a server imports is written when they are: by a check.
WHEELS = ("--only-binary=:all:", "--no-compile")


def prepare_engine_folder(work: Work) -> None:
    if not ENGINE_PYTHONS[0] <= sys.version_info[:2] <= ENGINE_PYTHONS[1]:
        have = f"{sys.executable} is {platform.python_version()}"
        text = f"the embedded engine needs Python 3.11 to 3.14, {have}: make setup SETUP_PYTHON=…"
        raise UsageError(text)
    if not work.target.python.exists():
        # Its interpreter has gone: whatever was done with it has to be done again.
        remove(work.target.folder)
    work.target.folder.mkdir(parents=True, exist_ok=True)


def mention_older(work: Work) -> None:
    """Engines of earlier lock files stay: another checkout may still use them."""
    folder = work.target.folder
    older = [path for path in folder.parent.glob(f"{work.target.name}-*/") if path != folder]
    if older:
        work.say(f"no longer needed, remove at will: {' '.join(map(str, older))}")


def create_venv(work: Work) -> None:
    work.say("creating its virtual environment")
    # Always from nothing: what an interrupted pip left behind can't be told from what it finished.
    remove(work.target.venv)
    work.run([sys.executable, "-m", "venv", str(work.target.venv)])
    install_lock(work, layout.BOOTSTRAP_LOCK, "--only-binary=:all:")


def install_lock(work: Work, lock: Path, *options: str) -> None:
    pip = [str(work.target.python), "-m", "pip", "install", "--no-input", "--progress-bar=off"]
    work.run([*pip, "--require-hashes", "--no-deps", *options, "-r", str(lock)])


def site_packages(target: Target) -> Path:
    (found,) = target.venv.glob("lib/python3*/site-packages")
    return found


def installed(target: Target, package: str) -> str:
    """The version, by the package's metadata."""
    (found,) = site_packages(target).glob(f"{package}-*.dist-info")
    return found.name.removesuffix(".dist-info").removeprefix(f"{package}-")


def remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
