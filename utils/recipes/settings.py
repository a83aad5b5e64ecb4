"""The environment of a recipe: every variable with its meaning, checked in one go."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils import errors, models
from utils.errors import UsageError
from utils.golden import rows
from utils.recipes import names, surroundings
from utils.recipes.speculation import METHODS
from utils.serving import slo

ROOT = Path(__file__).resolve().parents[2]
Environment = Mapping[str, str]


def positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError("want a whole number above 0")
    return int(text)


def port(text: str) -> int:
    if positive(text) > 65535:
        raise ValueError("want a port, 1 to 65535")
    return int(text)


def boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("want true or false, in full")
    return text == "true"


def concurrencies(text: str) -> tuple[int, ...]:
    found = tuple(positive(word) for word in text.split())
    if not found or len(set(found)) < len(found):
        raise ValueError('want distinct whole numbers, e.g. "1 32"')
    return found


def one_of(*known: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in known:
            raise ValueError(models.near(text, known))
        return text

    return check


def plain(text: str) -> str:
    if not text.isprintable():
        raise ValueError("want printable text")
    return text


def version(text: str) -> str:
    try:
        names.version_key(text)
    except UsageError as error:
        raise ValueError("want a version, e.g. 0.32.0") from error
    return text


def limits(text: str) -> str:
    try:
        slo.parse(text)
    except UsageError as error:  # now, not when the server has been loaded
        raise ValueError(str(error)) from error
    return text


def stem(text: str) -> str:
    if not re.fullmatch(r"[\w.@+-]+", text) or text.startswith("."):
        raise ValueError("want a file name without a folder or blanks")
    return text


VARIABLES: dict[str, Callable[[str], Any]] = {
    "MODEL": plain,
    "MODEL_PATH": plain,
    "MODEL_PREFIX": plain,
    "TP": positive,
    "EP_SIZE": positive,
    "DP_SIZE": positive,
    "DP_ATTENTION": boolean,
    "ISL": positive,
    "OSL": positive,
    "MAX_MODEL_LEN": positive,
    "CONC": concurrencies,
    "RUN_EVAL": boolean,
    "EVAL_ONLY": boolean,
    "EVAL_CONCURRENT_REQUESTS": concurrencies,
    "SPEC_DECODING": one_of("none", *METHODS),
    "THINKING": one_of("on", "off"),
    "SPEEDBENCH_DIR": plain,
    "RESULT_DIR": plain,
    "RESULT_FILENAME": stem,
    "PORT": port,
    "ENGINE_VERSION": version,
    "SERVER_READY_TIMEOUT_S": positive,
    "SYNTHETIC_ACCEPTANCE": boolean,
    "SERVING_CLIENT": one_of("specgate", "aiperf"),
    "SLO": limits,
    "LOSSLESS": boolean,
    "DRY_RUN": one_of("0", "1"),
}
REQUIRED = ("MODEL", "TP", "ISL", "OSL", "MAX_MODEL_LEN", "CONC")  # all others have a default
DRY_RESULT_DIR = "/tmp/specgate.DRY_RUN"


@dataclass(frozen=True)
class Settings:
    """A recipe's name and its environment, defaults filled in; `values` by variable name."""

    recipe: Path
    name: names.RecipeName
    values: Mapping[str, Any]

    def __getitem__(self, variable: str) -> Any:
        return self.values[variable]

    @property
    def collects(self) -> bool:
        """Does it measure one cell of a golden curve, and nothing else?"""
        return self.recipe == rows.CELL

    @property
    def evals(self) -> bool:
        return bool(self["RUN_EVAL"] or self["EVAL_ONLY"])

    @property
    def recipe_label(self) -> str:
        """Path relative to the repository; absolute for a recipe from elsewhere."""
        inside = self.recipe.is_relative_to(ROOT)
        return str(self.recipe.relative_to(ROOT) if inside else self.recipe)

    def exports(self) -> dict[str, str]:
        """What the recipe's shell gets: every variable in the spelling that was checked."""
        facts = {
            "ENGINE": self.name.engine,
            "ENGINE_FAMILY": self.name.engine_family,
            "PRECISION": self.name.precision,
            "HW": self.name.hw,
        }
        return {key: _spell(value) for key, value in self.values.items()} | facts


def load(recipe: Path, environment: Environment, required: Sequence[str] = ()) -> Settings:
    """Check the environment of a recipe and fill in the defaults.

    Raises:
        UsageError: one message with all problems.
    """
    name, environment = _named(recipe, environment)
    wanted = dict.fromkeys((*REQUIRED, *(key for key in required if key not in VARIABLES)))
    missing = [key for key in wanted if not environment.get(key)]
    problems = [f"set {' '.join(missing)}"] if missing else []
    values: dict[str, Any] = {}
    for key, parse in VARIABLES.items():
        if text := environment.get(key):
            try:
                values[key] = parse(text)
            except ValueError as error:
                problems.append(f"{key} is {text!r}: {error}")
    problems += _conflicts(values, name, environment)
    if problems:
        raise UsageError("; ".join(problems))
    model = models.load(values.get("MODEL_PREFIX", name.model))
    values = _defaults(values, name, model) | values
    model.mode(values["THINKING"])  # refuses a mode that the model hasn't
    return Settings(recipe.resolve(), name, values)


def _named(recipe: Path, environment: Environment) -> tuple[names.RecipeName, Environment]:
    """The facts in a recipe's name; a cell of a golden curve has them from its collection."""
    if recipe.resolve() != rows.CELL:
        return names.parse(recipe.name), environment
    row = rows.load(environment.get("COLLECTION", ""))
    return row.recipe_name, {**row.settings(), **environment}


def _conflicts(
    values: Mapping[str, Any], name: names.RecipeName, environment: Environment
) -> list[str]:
    found = []
    if values.get("SYNTHETIC_ACCEPTANCE") and (values.get("RUN_EVAL") or values.get("EVAL_ONLY")):
        found.append("SYNTHETIC_ACCEPTANCE=true with evals: made-up acceptance can't be evaluated")
    if values.get("LOSSLESS") and not (values.get("RUN_EVAL") or values.get("EVAL_ONLY")):
        found.append("LOSSLESS=true without evals, which write the outputs: set RUN_EVAL=true")
    for key, fact in (("ENGINE", name.engine), ("PRECISION", name.precision), ("HW", name.hw)):
        given = environment.get(key) or fact
        if given != fact:
            found.append(f"{key} is {given!r}, but the recipe's name says {fact!r}; unset it")
    found += surroundings.problems(environment, VARIABLES, name)
    folder = Path(values.get("RESULT_DIR", "/tmp")).absolute()
    if folder.is_relative_to("/workspace") and not folder.is_dir():
        found.append(f"RESULT_DIR {folder} would be a new folder under /workspace; take /tmp")
    return found


def _defaults(
    values: Mapping[str, Any], name: names.RecipeName, model: models.Model
) -> dict[str, Any]:
    isl, osl, conc = values["ISL"], values["OSL"], values["CONC"]
    point = f"_conc{conc[0]}" if len(conc) == 1 else ""  # of several each adds its own
    return {
        "MODEL_PATH": values["MODEL"],
        "MODEL_PREFIX": model.prefix,
        "EP_SIZE": 1,
        "DP_SIZE": 1,
        "DP_ATTENTION": False,
        "RUN_EVAL": False,
        "EVAL_ONLY": False,
        "EVAL_CONCURRENT_REQUESTS": (max(conc),),
        "THINKING": model.golden_thinking,
        "SPEEDBENCH_DIR": str(models.PROMPTS_DIR),
        "RESULT_DIR": DRY_RESULT_DIR if values.get("DRY_RUN") == "1" else "",
        "RESULT_FILENAME": f"serving_{name.file_name[:-3]}_isl{isl}_osl{osl}{point}",
        "PORT": 8888,
        "SERVER_READY_TIMEOUT_S": 1800,
        "SYNTHETIC_ACCEPTANCE": False,
        "SERVING_CLIENT": "specgate",
        "SLO": "",
        "LOSSLESS": False,
        "DRY_RUN": "0",
    }


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def create_result_dir(given: str) -> Path:
    """The folder of the results, new in /tmp unless given."""
    if not given:
        return Path(tempfile.mkdtemp(prefix="specgate.", dir="/tmp"))
    folder = make_folder(given, "RESULT_DIR")
    surroundings.check_unused(folder)
    return folder


def make_folder(given: str, variable: str) -> Path:
    """The folder that a variable names.

    Raises:
        UsageError: it can't be made, or not be written.
    """
    folder = Path(given).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"{variable} {folder}: {error.strerror}") from error
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    """Print NAME=value for each setting, NUL-terminated; make the result folder."""
    parser = argparse.ArgumentParser(prog="utils.recipes.settings", description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("required", nargs="*", help="variables that must not be empty")
    options = parser.parse_args(argv)
    dry = os.environ.get("DRY_RUN") == "1"
    surroundings.check_packages(surroundings.FOR_FACTS if dry else surroundings.PACKAGES)
    settings = load(options.recipe, os.environ, options.required)
    exports = settings.exports()
    if not dry:
        surroundings.check_packages(surroundings.FOR_EVALS if settings.evals else {})
        exports["RESULT_DIR"] = str(create_result_dir(settings["RESULT_DIR"]))
    sys.stdout.write("".join(f"{key}={value}\0" for key, value in exports.items()))
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
