"""The last look before an engine starts: its words, its environment, its port, the record."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utils import errors, processes, records
from utils.acceptance.engines import FORCED_ACCEPTANCE
from utils.errors import UsageError
from utils.recipes import spelling, surroundings

ROOT = Path(__file__).resolve().parents[2]

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_LEFTOVER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_SECRET = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|KEY)$")


@dataclass(frozen=True)
class Command:
    """What `env` takes: assignments, then the program and its arguments."""

    env: Mapping[str, str]
    argv: Sequence[str]

    def shown_env(self) -> dict[str, str]:
        """The assignments with secrets masked."""
        return {key: "***" if _SECRET.search(key) else value for key, value in self.env.items()}


def read_command(words: Sequence[str]) -> Command:
    """Split NAME=value words from the argv after them, and refuse what a typo left behind.

    Raises:
        UsageError: no program, an empty argument, or one with a {NAME} that lacks its dollar sign.
    """
    cut = next((i for i, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    env = dict(word.split("=", 1) for word in words[:cut])
    argv = list(words[cut:])
    if not argv:
        raise UsageError("name the program and its arguments")
    for before, word in zip(["", *argv], argv, strict=False):
        if not word:
            raise UsageError(f"the argument after {before!r} is empty")
    for word in words:
        if _LEFTOVER.search(word):
            raise UsageError(f"{word!r} looks like a variable without its $")
    return Command(env, argv)


def engine_environment(
    environment: Mapping[str, str], command: Command
) -> tuple[dict[str, str], list[str]]:
    """What the engine's environment must change: (set, unset).

    Raises:
        UsageError: ENGINE_PYTHON isn't a program.
    """
    unset = []
    if environment.get("SYNTHETIC_ACCEPTANCE") != "true":
        unset = [name for name in FORCED_ACCEPTANCE if name in environment]
        if forced := [name for name in FORCED_ACCEPTANCE if name in command.env]:
            raise UsageError(f"engine_env forces acceptance ({' '.join(forced)})")
    venv = ROOT / ".venv"
    if environment.get("VIRTUAL_ENV") == str(venv):
        unset.append("VIRTUAL_ENV")
    path = _without(environment.get("PATH", os.defpath), venv / "bin")
    if python := environment.get("ENGINE_PYTHON"):
        if not os.access(python, os.X_OK):
            raise UsageError(f"ENGINE_PYTHON {python} is not a program")
        path = f"{Path(python).absolute().parent}{os.pathsep}{path}"
    changed = {"PATH": path}
    if python_path := environment.get("PYTHONPATH"):
        changed["PYTHONPATH"] = _without(python_path, ROOT)
        if not changed["PYTHONPATH"]:
            del changed["PYTHONPATH"]
            unset.append("PYTHONPATH")
    return changed | dict(command.env), unset


def _without(path: str, folder: Path) -> str:
    kept = (part for part in path.split(os.pathsep) if Path(part).absolute() != folder)
    return os.pathsep.join(kept)


def check_port(port: int) -> None:
    """Refuse a port in use: its owner would answer in our engine's place.

    Raises:
        UsageError: someone has it.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            found = "; ".join(map(str, processes.listeners(port))) or error.strerror
            raise UsageError(
                f"PORT {port} is in use: {found}; stop it or choose another PORT"
            ) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Check, write server_command.json, print NUL-terminated words for `env`."""
    parser = argparse.ArgumentParser(prog="utils.serving.launch", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--record", type=Path, required=True, help="server_command.json")
    parser.add_argument(
        "--python-path", default="", help="PYTHONPATH as the caller has it: we run with our own"
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="NAME=value... argv...")
    options = parser.parse_args(argv)
    command = read_command(options.words)
    command = Command(command.env, spelling.spell_for(command.argv, os.environ))
    changed, unset = engine_environment({**os.environ, "PYTHONPATH": options.python_path}, command)
    if not shutil.which(command.argv[0], path=changed["PATH"]):
        raise UsageError(
            f"{command.argv[0]} is not on the engine's PATH; set ENGINE_PYTHON to the Python"
            " that has the engine"
        )
    check_port(options.port)
    surroundings.check_weights(os.environ.get("MODEL_PATH", ""))
    record = {
        "schema": "server_command/1",
        "argv": list(command.argv),
        "env": command.shown_env(),
        "unset": unset,
        "engine_python": os.environ.get("ENGINE_PYTHON") or None,
        "image": os.environ.get("IMAGE") or None,
        "engine_version": None,
        "started": records.utc_now(),
        "ready_s": None,
    }
    records.write_json(options.record, record, "server_command")
    removed = [word for name in unset for word in ("-u", name)]
    shown = [f"{key}={value}" for key, value in command.shown_env().items()]
    print(f"serve: {shlex.join([*shown, *command.argv])}", file=sys.stderr)
    words = [*removed, *(f"{key}={value}" for key, value in changed.items()), *command.argv]
    sys.stdout.write("".join(f"{word}\0" for word in words))
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
