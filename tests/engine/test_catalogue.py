"""The catalogues that recipes are checked against, against the engines' real parsers."""

from __future__ import annotations

import pytest

from tests.engine.server import find_engine
from utils import records
from utils.recipes import catalogue


@pytest.mark.parametrize(("engine", "environment"), [("vllm", "engine"), ("sglang", "sglang")])
def test_a_catalogue_is_what_the_parser_takes(engine: str, environment: str) -> None:
    """`python3 -m utils.recipes catalogue --engine … --python …` writes it anew."""
    said = catalogue.ask(engine, find_engine(environment).python)
    kept = records.read_json(catalogue.FOLDER / f"{engine}-{said['version']}.json")
    assert said["options"].keys() == kept["options"].keys()
    assert said == kept
