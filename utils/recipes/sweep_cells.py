"""A sweep's cells: one run of one recipe each, with its environment and its plan.json."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from utils import models, records
from utils.errors import UsageError
from utils.models import Model
from utils.recipes import names, rehearsal, run_plan, settings, speculate
from utils.recipes.settings import ROOT, Settings
from utils.recipes.subject import Subject
from utils.records import Json

SWEEPS_FILE = ROOT / "benchmarks" / "sweeps.yaml"
_PREFILL = re.compile(r"^serve_disaggregated (?P<workers>\d+) (?P<gpus>\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Asked:
    """What is measured of each recipe. scenarios: (ISL, OSL); evals: none, with, only.

    groups: concurrencies; those of a group share an engine, one after the other. image: of the
    container, empty: the one that sweeps.yaml says.
    """

    scenarios: Sequence[tuple[int, int]]
    groups: Sequence[tuple[int, ...]]
    evals: str
    thinking: str
    image: str = ""


@dataclass(frozen=True)
class Cell:
    """One run: `environment` is what its recipe is told, `plan` what must come back."""

    settings: Settings
    environment: Mapping[str, str]
    hardware: Json
    plan: Json

    @property
    def gpus(self) -> int:
        """Those held; of a disaggregated recipe, its prefill workers' too."""
        if self.settings.name.hw == "cpu":
            return 0
        said = _PREFILL.search(self.settings.recipe.read_text(encoding="utf-8"))
        prefill = int(said["workers"]) * int(said["gpus"]) if said else 0
        return int(self.settings["TP"] * self.settings["DP_SIZE"]) + prefill

    @property
    def id(self) -> str:
        """Every fact that makes a result comparable; fit for a folder and an artifact's name."""
        asked = self.settings
        topology = f"tp{asked['TP']}-ep{asked['EP_SIZE']}{'-dpa' * asked['DP_ATTENTION']}"
        parts = [asked.recipe.stem, topology, f"isl{asked['ISL']}-osl{asked['OSL']}"]
        parts += [f"conc{_dashed(asked['CONC'])}"]
        if asked.evals:
            points = _dashed(asked["EVAL_CONCURRENT_REQUESTS"])
            only = "only-" if asked["EVAL_ONLY"] else ""
            parts += [f"evals-{only}{points}", f"thinking-{asked['THINKING']}"]
        return "_".join(parts)


def _dashed(values: Sequence[int]) -> str:
    return "-".join(map(str, values))


def facts() -> Json:
    return records.read_yaml(SWEEPS_FILE, "sweeps")


def cells(recipe: Path, asked: Asked, known: Json) -> list[Cell]:
    """All runs of one recipe.

    Raises:
        UsageError: nothing launches its hardware, or the recipe refuses its topology.
    """
    name = names.parse(recipe.name)
    model = models.load(name.model)
    if name.hw not in known["hardware"]:
        near = models.near(name.hw, known["hardware"])
        raise UsageError(f"{SWEEPS_FILE}: nobody launches {recipe.stem} on {name.hw}; {near}")
    shared = {
        "MODEL": model.checkpoint(name.precision),
        "THINKING": model.golden_thinking if asked.thinking == "golden" else asked.thinking,
        **_topology(recipe, known),
    }
    if not known["hardware"][name.hw]["embedded_engine"]:
        shared |= {"IMAGE": asked.image} if asked.image else _image(recipe, known)
    words = _speculated(recipe, shared)
    found = []
    for isl, osl in asked.scenarios:
        for load in _loads(asked):
            environment = {**shared, "ISL": str(isl), "OSL": str(osl), **load}
            evals = "true" in (load["RUN_EVAL"], load["EVAL_ONLY"])
            length = _context(model, environment["THINKING"], isl + osl, evals, known)
            environment["MAX_MODEL_LEN"] = str(length)
            checked = settings.load(recipe, environment)
            wanted = run_plan.make(checked, run_plan.load_speculation(checked, words))
            found.append(Cell(checked, environment, known["hardware"][name.hw], wanted))
    return found


def _topology(recipe: Path, known: Json) -> dict[str, str]:
    for row in known["topologies"]:
        if fnmatchcase(recipe.stem, row["recipes"]):
            attention = "true" if row.get("dp_attention") else "false"
            ep_size = str(row.get("ep_size", 1))
            return {"TP": str(row["tp"]), "EP_SIZE": ep_size, "DP_ATTENTION": attention}
    raise UsageError(f"{SWEEPS_FILE}: no topology fits {recipe.stem}; add one")


def _image(recipe: Path, known: Json) -> dict[str, str]:
    """The image by the header's newest version; a server of another one is refused."""
    subject = Subject(recipe, ())
    engine = subject.name.engine
    if engine not in known["images"]:
        raise UsageError(f"{SWEEPS_FILE} has no image for {engine} ({recipe.stem}): give --image")
    if not subject.versions:
        raise UsageError(f"{recipe.stem}: its header names no version of its engine")
    version = max(subject.versions, key=names.version_key)
    image: str = known["images"][engine]
    return {"IMAGE": image.replace("{version}", version), "ENGINE_VERSION": version}


def _speculated(recipe: Path, environment: Mapping[str, str]) -> list[str]:
    """What the recipe says to speculate: method, N, key=value."""
    topology = {key: environment[key] for key in ("TP", "EP_SIZE", "DP_ATTENTION")}
    if names.parse(recipe.name).disaggregated:
        topology["ROLE"] = "decode"  # whose drafts are accepted
    shown = rehearsal.rehearse(recipe, topology)
    if shown.error:
        raise UsageError(f"{recipe.stem} with {shown.label}: {shown.error}")
    if not shown.speculated:
        return []
    said = speculate.of_words(shown.speculated[0])
    keys = [f"{key}={value}" for key, value in said.keys.items()]
    return [said.method, str(said.num_tokens), *keys]


def _loads(asked: Asked) -> Iterator[dict[str, str]]:
    """One load a group; evals ride on the engine of the highest concurrency, at every one."""
    every = tuple(concurrency for group in asked.groups for concurrency in group)
    for group in (every,) if asked.evals == "only" else asked.groups:
        load = {"CONC": _spaced(group), "RUN_EVAL": "false", "EVAL_ONLY": "false"}
        if asked.evals == "only":
            load |= {"EVAL_ONLY": "true", "EVAL_CONCURRENT_REQUESTS": _spaced(every)}
        elif asked.evals == "with" and max(every) in group:
            load |= {"RUN_EVAL": "true", "EVAL_CONCURRENT_REQUESTS": _spaced(every)}
        yield load


def _spaced(values: Sequence[int]) -> str:
    return " ".join(map(str, values))


def _context(model: Model, thinking: str, lengths: int, evals: bool, known: Json) -> int:
    """MAX_MODEL_LEN: what the longest request of the cell needs, tokens."""
    from utils.evals.lm_eval_run import token_budget

    room: dict[str, Any] = known["context_tokens"]
    needed = lengths + room["serving"]
    if evals:
        budgets = [token_budget(task, thinking) for task in model.eval_tasks]
        needed = max(needed, room["evals"] + max(*budgets, model.prompt_set.output_len))
    return int(needed)
