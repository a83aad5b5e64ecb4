"""A snapshot → what an engine loads. One file each kind of draft, found by its name.

Converting renames tensors and writes a config.json; numbers are never touched, so it needs no torch
and runs in the worker. A plug-in has two functions:

    matches(config) -> bool             whether a config.json is of its kind
    plan(source, engine) -> Plan        what would be done; raises UsageError when it can't be

The plan is checked before a byte is written and before an engine is paid for: every tensor of the
snapshot is used, none that the engine wants is missing, and all have the shape that config.json
says. Engines themselves leave a missing tensor as it happened to be initialised.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from utils import records
from utils.decode_eval import weights
from utils.decode_eval.weights import Weights
from utils.errors import NotMeasured, UsageError
from utils.models import near
from utils.records import Json

Shape = tuple[int, ...]
_TAKEN_FOR_A_METHOD = ("eagle-", "eagle3", "dflash", "dspark")
# Ends of the target's names for what some engines give a draft in place of its own.
INPUT, HEAD = "embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True)
class Draft:
    """A draft that an engine can load: method and keys in the words of a recipe's `speculate`."""

    method: str
    path: Path
    speculation: dict[str, str]


@dataclass(frozen=True)
class Source:
    """A snapshot; target: config.json of the target, empty where it is no folder here."""

    folder: Path
    config: Json
    target: Json
    weights: Weights


@dataclass(frozen=True)
class Plan:
    """What a plug-in would do.

    names: tensor of the snapshot → name for the engine. wanted: shape by the engine's name.
    optional: the same, of what may be absent. shared: by the engine's name, what the engine will
    replace with the target's INPUT or HEAD, so that the snapshot's must be the same.
    """

    method: str
    config: Json
    names: Mapping[str, str]
    wanted: Mapping[str, Shape]
    optional: Mapping[str, Shape] = field(default_factory=dict)
    speculation: dict[str, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)


def plan(snapshot_dir: Path, target_model: str, engine: str) -> Plan:
    """The dry run: everything is read and checked, nothing is written.

    Raises:
        UsageError: an unknown architecture, or tensors that don't make this kind of draft.
    """
    source = _source(snapshot_dir, target_model)
    kinds = plugins()
    found = [name for name, module in kinds.items() if module.matches(source.config)]
    if len(found) != 1:
        said = source.config.get("architectures")
        raise UsageError(
            f"{snapshot_dir / weights.CONFIG}: no converter for architectures {said}"
            f"{f', several claim it: {found}' if found else ''}; there are {', '.join(kinds)}. "
            "A draft of another architecture is not passed off as one of them"
        )
    made: Plan = kinds[found[0]].plan(source, engine)
    _check(source, made)
    _check_shared(source, made, Path(target_model))
    return replace(made, config=_in_the_targets_type(made.config, source.target))


def convert(snapshot_dir: Path, target_model: str, engine: str, out_dir: Path) -> Draft:
    """Write what the engine loads into out_dir. Weights that keep their names are linked.

    target_model: its folder, against whose config.json the draft is checked; another text is not.

    Raises:
        UsageError: as plan().
    """
    made = plan(snapshot_dir, target_model, engine)
    _check_path(made.method, engine, out_dir)
    source = weights.read(snapshot_dir)
    weights.write_renamed(source, made.names, out_dir)
    records.write_json(out_dir / weights.CONFIG, made.config)
    return Draft(made.method, out_dir, dict(made.speculation))


def _check_path(method: str, engine: str, path: Path) -> None:
    """vLLM goes by the path before it goes by the method that it was told."""
    found = [word for word in _TAKEN_FOR_A_METHOD if word in str(path).lower()]
    if engine == "vllm" and method in ("draft_model", "mtp") and found:
        raise UsageError(
            f"{path}: vLLM takes a draft whose path has {found[0]!r} for another kind than "
            f"{method}; name output_dir otherwise"
        )


def plugins() -> dict[str, ModuleType]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def same_as_target(source: Source, *names: str) -> None:
    """Fields in which draft and target must agree, where the target's config.json is at hand.

    Raises:
        UsageError: they differ.
    """
    for name in names:
        draft, target = source.config.get(name), source.target.get(name)
        if target is not None and draft != target:
            raise UsageError(f"config.json: {name} is {draft}, the target's is {target}")


def _source(folder: Path, target_model: str) -> Source:
    target = Path(target_model) / weights.CONFIG
    try:
        config = records.read_json(folder / weights.CONFIG)
        target_config = records.read_json(target) if target.is_file() else {}
    except NotMeasured as error:
        raise UsageError(str(error)) from error
    return Source(folder, config, target_config, weights.read(folder))


def _in_the_targets_type(config: Json, target: Json) -> Json:
    """Engines compute a draft in the target's type; SGLang believes the draft's config.json.

    A head that trains in float32 would run there in float16, beside a target in bfloat16.
    """
    dtype = target.get("dtype") or target.get("torch_dtype")
    if dtype is None:
        return config
    return {**{name: v for name, v in config.items() if name != "torch_dtype"}, "dtype": dtype}


def _check_shared(source: Source, made: Plan, target: Path) -> None:
    """What the engine takes from the target is the target's in the snapshot too."""
    ours = {new: source.weights.tensors[old] for old, new in made.names.items()}
    for new, end in made.shared.items():
        if new not in ours:
            continue
        why = f"{source.weights.path}: the engine will use the target's {end} in place of {new}"
        if not target.is_dir():
            raise UsageError(f"{why}, and {target} is no folder to compare it with")
        theirs = weights.read(target).tensors
        found = [name for name in theirs if name.endswith(end) and ".layers." not in name]
        # A target whose head is its embedding has no tensor for it.
        found = found or [name for name in theirs if name.endswith(INPUT)]
        if len(found) != 1 or not weights.equal(ours[new], theirs[found[0]]):
            raise UsageError(
                f"{why}, which is another: a head that has trained its own can't be measured there"
            )


def _check(source: Source, made: Plan) -> None:
    """Every tensor consumed, none missing, every shape as the config has it."""
    have = source.weights.tensors
    renamed = {new: old for old, new in made.names.items()}
    where = f"{source.weights.path} as {made.method}"
    if len(renamed) != len(made.names):
        raise UsageError(f"{where}: two tensors would get one name; names are {sorted(have)}")
    known = {**made.optional, **made.wanted}
    if unknown := [new for new in renamed if new not in known]:
        first = unknown[0]
        raise UsageError(
            f"{where}: nothing takes {', '.join(sorted(unknown))}; {near(first, known)}"
        )
    if missing := sorted(made.wanted.keys() - renamed.keys()):
        raise UsageError(f"{where}: missing {', '.join(missing)}")
    if unused := sorted(have.keys() - made.names.keys()):
        raise UsageError(f"{where}: nothing is made of {', '.join(unused)}")
    for new, old in renamed.items():
        if have[old].shape != known[new]:
            raise UsageError(
                f"{where}: {old} has shape {list(have[old].shape)}, by config.json it is "
                f"{list(known[new])}"
            )
