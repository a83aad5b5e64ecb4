from __future__ import annotations

from pathlib import Path

import pytest

from utils import models, records
from utils.errors import UsageError

PREFIXES = records.read_yaml(models.MODELS_FILE, "models")["models"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_row_has_its_golden_mode_and_prompt_set(prefix: str) -> None:
    model = models.load(prefix)
    assert model.mode(model.golden_thinking).sampling["temperature"] >= 0
    assert model.prompt_set.prompts > 0


def test_an_unknown_prefix_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean smollm2"):
        models.load("smolm2")


def test_a_mode_that_the_model_has_not() -> None:
    with pytest.raises(UsageError, match="no thinking mode 'on'"):
        models.load("smollm2").mode("on")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema: models/1\nschema: models/1\n", "given twice"),
        ("schema: models/2\nprompt_sets: {}\nmodels: {}\n", "schema"),
        ("schema: [", "can't be read as YAML"),
    ],
)
def test_an_unusable_file_is_a_usage_error(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        models.load("smollm2", path)
