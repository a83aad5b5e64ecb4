"""What is around a recipe and spoils it late or unseen: variables that it does not have, packages
that its Python lacks, results of an earlier run, weights that are not there."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path

from utils.errors import UsageError
from utils.recipes.names import RecipeName

# What is imported beside an engine, by the name that pip knows.
FOR_FACTS = {"yaml": "PyYAML"}
PACKAGES = {
    "requests": "requests",
    "aiohttp": "aiohttp",
    "prometheus_client": "prometheus_client",
    "jsonschema": "jsonschema",
    **FOR_FACTS,
}
FOR_EVALS = {"lm_eval": "lm-eval[api]"}
SERVER_LOG = "server.log"  # as benchmark_lib.sh calls it
SHORTEST = 7  # MODELS or TMP are too near to ours to be taken for typos
LIKENESS = 0.9


def problems(environment: Mapping[str, str], known: Collection[str], name: RecipeName) -> list[str]:
    """Variables that somebody set in vain: misspelt ones of ours, and other harnesses' facts of a
    run that a recipe here doesn't have. known: what a recipe takes."""
    ours = [variable for variable in known if len(variable) >= SHORTEST]
    found = []
    for variable in environment:
        near = difflib.get_close_matches(variable.upper(), ours, 1, LIKENESS)
        if near and variable not in known:
            found.append(f"{variable} means nothing here, did you mean {near[0]}? Unset it")
    for variable, fact in _elsewhere(name).items():
        given = environment.get(variable) or fact
        if given != fact:
            found.append(f"{variable} is {given!r}, this recipe has {fact!r}; unset it")
    return found


def _elsewhere(name: RecipeName) -> dict[str, str]:
    """Variables of InferenceX's CI, and the only value that is true of this recipe."""
    return {
        "PP_SIZE": "1",
        "DCP_SIZE": "1",
        "PCP_SIZE": "1",
        "FRAMEWORK": name.engine,
        "DISAGG": "true" if name.disaggregated else "false",
        "EVAL_FRAMEWORK": "lm-eval",
    }


def check_packages(wanted: Mapping[str, str]) -> None:
    """wanted: import name → pip's name.

    Raises:
        UsageError: this Python lacks some.
    """
    if lacking := [pip for package, pip in wanted.items() if find_spec(package) is None]:
        raise UsageError(
            f"{sys.executable} lacks {' '.join(lacking)}: pip install them, or set HARNESS_PYTHON"
            " to a Python that has them (`make setup` makes .venv/bin/python)"
        )


def check_unused(folder: Path) -> None:
    """Results of two runs in one folder would be judged as one, and found stale.

    Raises:
        UsageError: there are some.
    """
    if (folder / SERVER_LOG).exists():
        raise UsageError(
            f"RESULT_DIR {folder} holds an earlier run's results: name a new folder, or empty it"
        )


def check_weights(model_path: str) -> None:
    """What looks like a path must be there: an engine would look for it on a hub, minutes later.

    Raises:
        UsageError: it isn't.
    """
    if model_path.startswith(("/", ".", "~")) and not Path(model_path).exists():
        raise UsageError(f"MODEL_PATH {model_path} isn't there: name the folder of the weights")
