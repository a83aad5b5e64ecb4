"""Runs inside an engine's environment: print which options its server takes, as JSON.

Standalone, because an engine's environment has none of our packages. The parser is the engine's
own; to what it checks are added the names that it looks up only after the weights are loaded.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import io
import json
import re
import sys
import typing
from typing import Any

LOOKED_UP_LATER = {
    "--reasoning-parser": ("vllm.reasoning", "ReasoningParserManager"),
    "--tool-call-parser": ("vllm.tool_parsers", "ToolParserManager"),
}
Option = dict[str, Any]


def vllm() -> tuple[str, dict[str, Option]]:
    flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    try:  # it moved in 0.29
        cli_args = importlib.import_module("vllm.entrypoints.launchers.cli_args")
    except ModuleNotFoundError:
        cli_args = importlib.import_module("vllm.entrypoints.openai.cli_args")
    engine_args = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs
    config = importlib.import_module("vllm.config")
    options = describe(cli_args.make_arg_parser(flexible()), type_hints(engine_args))
    options["--speculative-config"]["keys"] = keys_of(config.SpeculativeConfig)
    modes = options["--tokenizer-mode"]
    modes["choices"] = modes.get("choices") or modes.pop("shown")
    for option, (module, manager) in LOOKED_UP_LATER.items():
        names = getattr(importlib.import_module(module), manager).list_registered()
        options[option]["choices"] = sorted(names)
    return importlib.import_module("vllm.version").__version__, options


def sglang() -> tuple[str, dict[str, Option]]:
    arguments = importlib.import_module("sglang.srt.server_args").ServerArgs
    parser = argparse.ArgumentParser()
    arguments.add_cli_args(parser)
    options = describe(parser, {})
    known = importlib.import_module("sglang.srt.speculative.spec_info").SpeculativeAlgorithm
    options["--speculative-algorithm"]["choices"] = sorted(known.__members__)
    return importlib.import_module("sglang.version").__version__, options


def describe(parser: argparse.ArgumentParser, hints: dict[str, Any]) -> dict[str, Option]:
    found = {}
    for action in parser._actions:  # argparse shows its options nowhere else
        entry = {"takes": takes(action), **kind(action, hints.get(action.dest))}
        for name in action.option_strings:
            found[name] = dict(entry)
    return found


def takes(action: argparse.Action) -> str:
    return "1" if action.nargs is None else str(action.nargs)


def kind(action: argparse.Action, hint: Any) -> Option:
    """Choices, type and JSON keys, as far as the parser or the field's type say them."""
    entry: Option = {}
    if remedy := deprecation(action):
        entry["deprecated"] = remedy
    if action.choices:
        entry["choices"] = sorted(str(choice) for choice in action.choices if choice is not None)
    elif isinstance(action.metavar, (list, tuple)):
        entry["shown"] = [str(name) for name in action.metavar]
    parts = members(hint)
    config = next((part for part in parts if dataclasses.is_dataclass(part)), None)
    if config:
        entry["keys"] = keys_of(config)
    if config or any((typing.get_origin(part) or part) is dict for part in parts):
        entry["type"] = "json"
    elif action.type in (int, float) or (parts <= {int, type(None)} and parts):
        entry["type"] = "float" if action.type is float else "int"
    return entry


def type_hints(config: Any) -> dict[str, Any]:
    """As typing does it, but a name that only type checkers import counts as Any."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            return typing.get_type_hints(config, localns=unknown)
        except NameError as error:
            if error.name is None or error.name in unknown:
                raise
            unknown[error.name] = Any


def deprecation(action: argparse.Action) -> str | None:
    """Said by the action's class, or only in its help."""
    text = " ".join((action.help or "").split())
    if type(action).__name__.startswith("Deprecated") or re.match(r"\W*deprecated", text, re.I):
        return str(getattr(action, "new_flag", "") or text or "no remedy named")
    return None


def members(hint: Any) -> set[Any]:
    """The parts of a union, of Annotated and of nested ones; Literal counts as one part."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return members(typing.get_args(hint)[0])
    if origin is typing.Union or type(hint).__name__ == "UnionType":
        return set().union(*(members(part) for part in typing.get_args(hint)))
    return set() if hint is None else {hint}


def keys_of(config: Any) -> Option:
    """Key → its choices, its own keys, or null when any value will do."""
    hints = type_hints(config)
    return {
        field.name: values(members(hints[field.name]))
        for field in dataclasses.fields(config)
        if field.init and not field.name.startswith("_")
    }


def values(parts: set[Any]) -> list[str] | Option | None:
    if config := next((part for part in parts if dataclasses.is_dataclass(part)), None):
        return keys_of(config)
    literals = [part for part in parts if typing.get_origin(part) is typing.Literal]
    if literals and all(part in literals or part is type(None) for part in parts):
        return sorted({str(value) for part in literals for value in flat(part)})
    return None


def flat(literal: Any) -> list[Any]:
    return [value for value in typing.get_args(literal) if value is not None]


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):  # engines greet
        version, options = {"vllm": vllm, "sglang": sglang}[sys.argv[1]]()
    for option in options.values():
        option.pop("shown", None)
    print(json.dumps({"version": version.partition("+")[0], "options": options}))
