"""Which options an engine's server takes, per version: options/<engine>-<version>.json."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from utils import models, records
from utils.errors import UsageError
from utils.recipes.names import version_key

FOLDER = Path(__file__).parent / "options"
DUMP = Path(__file__).parent / "dump_options.py"
_NUMBERS = {"int": re.compile(r"-?\d+"), "float": re.compile(r"-?\d+(\.\d*)?([eE]-?\d+)?")}


@dataclass(frozen=True)
class Problem:
    """What is wrong with one word of a command line; is_json: with the text of a JSON argument."""

    word: str
    text: str
    is_json: bool = False


@dataclass(frozen=True)
class Catalogue:
    """The options of one version of an engine, from its own parser (see dump_options.py)."""

    engine: str
    version: str
    options: Mapping[str, Mapping[str, Any]]

    @property
    def name(self) -> str:
        return f"{self.engine} {self.version}"

    def problems(self, words: Sequence[str]) -> Iterator[Problem]:
        """What this version would not take, of the words after the model."""
        rest = list(words)
        while rest:
            word = rest.pop(0)
            name, equals, value = word.partition("=")
            option = self.options.get(name)
            values = [value] if equals else _take_values(rest, option)
            if option is None:
                yield Problem(name, self._unknown(name))
            else:
                yield from self._check(name, option, values)

    def _unknown(self, name: str) -> str:
        if not name.startswith("-"):
            return f"{name!r} belongs to no option"
        if name.startswith("--") and "." in name:
            return (
                f"write {name.partition('.')[0].replace('_', '-')} with JSON, that can be checked"
            )
        return f"{self.name} has no option {name}; {models.near(name, self.options)}"

    def _check(self, name: str, option: Mapping[str, Any], values: list[str]) -> Iterator[Problem]:
        if "deprecated" in option:
            yield Problem(name, f"{self.name} deprecates {name}: {option['deprecated']}")
        if not _right_number(option["takes"], len(values)):
            yield Problem(name, f"{name} has {len(values)} values, takes {option['takes']}")
        for value in values:
            if value.startswith("{") or option.get("type") == "json":
                yield from self._check_json(name, option, value)
            elif value not in option.get("choices", [value]):
                near = models.near(value, option["choices"])
                yield Problem(name, f"{self.name} has no {name} {value}; {near}")
            elif not _NUMBERS.get(option.get("type", ""), re.compile(".*", re.S)).fullmatch(value):
                yield Problem(name, f"{name} is {value!r}, want {option['type']}")

    def _check_json(self, name: str, option: Mapping[str, Any], text: str) -> Iterator[Problem]:
        try:
            value = json.loads(text)
        except ValueError as error:
            yield Problem(name, f"{name} is no JSON: {error}", is_json=True)
            return
        if "keys" in option:
            for problem in _unknown_keys(value, option["keys"]):
                yield Problem(name, f"{self.name}, {name}: {problem}")


def _take_values(rest: list[str], option: Mapping[str, Any] | None) -> list[str]:
    """Remove an option's values from the words after it."""
    if option is None or option["takes"] == "0":
        most = 0 if option else len(rest)  # of an unknown option, whatever follows
    else:
        most = int(option["takes"]) if option["takes"].isdigit() else len(rest)
    values: list[str] = []
    while rest and len(values) < most and not re.match(r"--?[A-Za-z]", rest[0]):
        values.append(rest.pop(0))
    return values


def _right_number(takes: str, number: int) -> bool:
    fewest = {"?": 0, "*": 0, "+": 1}
    return number >= fewest[takes] if takes in fewest else number == int(takes)


def _unknown_keys(value: Any, keys: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{value!r} is no object"
        return
    for key, inner in value.items():
        known = keys.get(key)
        if key not in keys:
            yield f"no key {key!r}; {models.near(key, keys)}"
        elif isinstance(known, dict):
            yield from _unknown_keys(inner, known)
        elif known and str(inner) not in known:
            yield f"no {key} {inner!r}; {models.near(str(inner), known)}"


@cache
def versions(engine: str) -> tuple[str, ...]:
    """Versions that have a catalogue, the newest last."""
    found = (path.stem.partition("-")[2] for path in FOLDER.glob(f"{engine}-*.json"))
    return tuple(sorted(found, key=version_key))


@cache
def load(engine: str, version: str) -> Catalogue:
    """The catalogue of one version.

    Raises:
        UsageError: there is none.
    """
    if version not in versions(engine):
        known = ", ".join(versions(engine)) or "none"
        raise UsageError(
            f"the options of {engine} {version} are unknown, there are catalogues of {known}:"
            f" python3 -m utils.recipes catalogue --engine {engine} --python <its python>"
        )
    data = records.read_json(FOLDER / f"{engine}-{version}.json")
    return Catalogue(engine, version, data["options"])


def ask(engine: str, python: Path) -> records.Json:
    """A catalogue by an engine's own parser, in the engine's own environment.

    Raises:
        UsageError: it can't be asked.
    """
    try:
        done = subprocess.run(
            [str(python), "-", engine],  # not by path: our modules must not be beside it
            input=DUMP.read_text(encoding="utf-8"),
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
    except OSError as error:
        raise UsageError(f"{python}: {error.strerror}; name the engine's python") from error
    if done.returncode:
        last = (done.stderr.splitlines() or ["no message"])[-1]
        raise UsageError(f"{python} doesn't import {engine}: {last}")
    data = {"schema": "options/1", "engine": engine, **json.loads(done.stdout)}
    if problem := records.schema_problem(data, "options"):
        raise UsageError(f"{engine} {data['version']}: {problem} (schema options)")
    return data


def write(engine: str, python: Path) -> Path:
    """Ask an engine, and keep what it says.

    Raises:
        UsageError: it can't be asked.
    """
    data = ask(engine, python)
    path = FOLDER / f"{engine}-{data['version']}.json"
    lines = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(option, sort_keys=True)}"
        for name, option in sorted(data.pop("options").items())
    )
    head = json.dumps(data, indent=2).removesuffix("\n}")
    path.write_text(f'{head},\n  "options": {{\n{lines}\n  }}\n}}\n', encoding="utf-8")
    versions.cache_clear()
    return path
