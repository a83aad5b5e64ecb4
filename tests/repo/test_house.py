"""The repository itself: the rules of AGENTS.md that a machine can check."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
SCHEMAS = sorted((ROOT / "utils" / "schemas").glob("*.json"))
SHELL = sorted([*ROOT.glob("benchmarks/**/*.sh"), *ROOT.glob("runners/*.sh"), ROOT / ".ci" / "run"])
RECIPES = sorted(ROOT.glob("benchmarks/*_node/*.sh"))
MODULES = sorted((ROOT / "utils").rglob("*.py"))
# Other people's files, and meta_env.json, which has other writers too.
FOREIGN = {"al_record_v1", "inferencex_agg", "lm_eval_results", "meta_env"}


def objects(schema: Any, where: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object schema that names properties, with its path."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield where, schema
        for key, value in schema.items():
            if key not in ("if", "then", "else"):  # conditions restate, they don't describe
                yield from objects(value, f"{where}.{key}")
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from objects(value, f"{where}[{index}]")


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_schemas_are_valid_closed_and_described(path: Path) -> None:
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for where, part in objects(schema):
        if path.stem not in FOREIGN:
            assert part.get("additionalProperties") is False, f"{where} is open"
        for name, value in part["properties"].items():
            assert "description" in value or "$ref" in value, f"{where}: {name} isn't described"


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_shell_hides_no_failure_and_leaves_the_rest_to_python(path: Path) -> None:
    code = "\n".join(
        line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")
    )
    found = re.findall(
        r"\|\| true|\bpkill\b|\bkillall\b|\bcurl\b|\bjq\b|\bawk\b|\bsed\b|python3? -c", code
    )
    assert found == []


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_recipes_state_facts(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 50
    assert "set -euo pipefail" in text
    assert not re.search(r"^\s*(for|while|until|trap|function)\b|^\w+\(\)", text, re.MULTILINE)
    assert ("\nspeculate " in text) == path.stem.endswith("_mtp")


def test_no_module_takes_the_name_of_a_package() -> None:
    installed = {name.lower().replace("-", "_") for name in metadata.packages_distributions()}
    taken = installed | set(sys.stdlib_module_names)
    assert [str(path) for path in MODULES if path.stem in taken and path.stem != "__init__"] == []


def test_modules_stay_small() -> None:
    long = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in MODULES}
    assert {name: lines for name, lines in long.items() if lines > 300} == {}


def test_every_variable_is_documented() -> None:
    from utils.recipes.settings import VARIABLES

    told = set(re.findall(r"`([A-Z_]+)`", (ROOT / "docs" / "environment.md").read_text()))
    assert VARIABLES.keys() - told == set()


def test_acceptance_stands_alone() -> None:
    """The instrument knows nothing of goldens, CI, training, or who starts servers."""
    text = "\n".join(p.read_text() for p in (ROOT / "utils" / "acceptance").rglob("*.py"))
    above = "golden|evals|decode_eval|report|recipes|serving|ci|runners"
    assert re.findall(rf"utils\.(?:{above})\b", text) == []


def test_nothing_large_is_committed() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    files = [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    assert [str(path) for path in files if path.stat().st_size > 1_500_000] == []
