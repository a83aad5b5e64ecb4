"""What a recipe would start, per topology: its own bash and library, but no Python of ours.

A dry run starts Python six times, a rehearsal none; all of them take seconds. What Python would
say in between is worked out here, by the same functions.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from utils import models
from utils.errors import UsageError
from utils.recipes import names, settings, speculate
from utils.serving.launch import Command, read_command

STAND_IN = Path(__file__).parent / "rehearse.sh"
WEIGHTS = "/models"
PORT = "8888"
CPU = ({"TP": "1"},)
GPU = (
    {"TP": "8"},
    {"TP": "4", "EP_SIZE": "4"},
    {"TP": "8", "EP_SIZE": "8", "DP_ATTENTION": "true"},
)
# A worker of each role; ROLE says which one a rehearsal looks at.
NODES = tuple({"TP": "8", "DP_SIZE": "4", "ROLE": role} for role in ("prefill", "decode"))
REFUSED = "error: topology: "
_BEGIN, _END = "<speculate>", "</speculate>"


@dataclass(frozen=True)
class Rehearsal:
    """One recipe under one topology; `command` is None when it started nothing, `error` says why.

    speculated: the arguments of each `speculate`, once for each time that they are served.
    """

    recipe: Path
    topology: Mapping[str, str]
    command: Command | None
    error: str = ""
    speculated: Sequence[Sequence[str]] = field(default_factory=tuple)

    @property
    def refused(self) -> bool:
        """Did the recipe itself say that it isn't for this topology?"""
        return self.error.startswith(REFUSED)

    @property
    def label(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.topology.items())


def rehearse_all(recipes: Iterable[Path]) -> list[Rehearsal]:
    """Every recipe under every topology that is plausible for its hardware."""
    pairs = [(recipe, topology) for recipe in recipes for topology in topologies(recipe)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda pair: rehearse(*pair), pairs))


def topologies(recipe: Path) -> tuple[dict[str, str], ...]:
    name = names.parse(recipe.name)
    if name.disaggregated:
        return NODES
    return CPU if name.hw == "cpu" else GPU


def rehearse(recipe: Path, topology: Mapping[str, str]) -> Rehearsal:
    """Run a recipe up to what it would serve."""
    name = names.parse(recipe.name)
    try:
        model = models.load(name.model).checkpoint(name.precision)
        exports = settings.load(recipe, {**environment(model), **topology}).exports()
    except UsageError as error:
        return Rehearsal(recipe, topology, None, str(error))
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as rehearsed:
        rehearsed.write("".join(f"{key}={value}\0" for key, value in exports.items()))
        rehearsed.flush()
        done = subprocess.run(
            ["bash", str(recipe)],
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "HARNESS_PYTHON": str(STAND_IN),
                "REHEARSED_SETTINGS": rehearsed.name,
                "DRY_RUN": "1",
                "ROLE": topology.get("ROLE", ""),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        return Rehearsal(recipe, topology, None, said)
    speculated: list[list[str]] = []
    try:
        command = _read(done.stdout, speculated)
    except UsageError as error:
        return Rehearsal(recipe, topology, None, str(error), speculated)
    return Rehearsal(recipe, topology, command, "", speculated)


def environment(model: str) -> dict[str, str]:
    """What a rehearsed recipe is told, apart from its topology."""
    return {
        "MODEL": model,
        "MODEL_PATH": f"{WEIGHTS}/{model}",
        "PORT": PORT,
        "DRY_RUN": "1",
        "ISL": "8192",
        "OSL": "1024",
        "MAX_MODEL_LEN": "16384",
        "CONC": "32",
    }


def _read(output: str, speculated: list[list[str]]) -> Command:
    """The command, with the engine's arguments in place of what was said to speculate."""
    words = output.split("\0")[:-1]
    while _BEGIN in words:
        begin, end = words.index(_BEGIN), words.index(_END)
        speculated.append(words[begin + 1 : end])
        words[begin : end + 1] = speculate.of_words(words[begin + 1 : end]).arguments()
    return read_command(words)
