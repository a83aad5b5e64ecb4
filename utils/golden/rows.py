"""Rows of `collections` in models.yaml: how the cells of one golden curve are served."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utils import errors, models
from utils.errors import UsageError
from utils.models import Model
from utils.recipes.names import RecipeName

ENGINE = "vllm"
COMMIT = re.compile("[0-9a-f]{40}")
CELL = Path(__file__).resolve().parents[2] / "benchmarks" / "speedbench" / "cell.sh"


@dataclass(frozen=True)
class Row:
    """One collection. speculation: further keys of `speculate`; golden: name of a golden file.

    model_revision: of the weights, None where a row leaves it open.
    """

    name: str
    model: Model
    golden: str
    precision: str
    hw: str
    tp: int
    ep: int
    max_model_len: int
    method: str
    speculation: Mapping[str, str | int]
    num_speculative_tokens: tuple[int, ...]
    thinking: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    model_revision: str | None = None

    @property
    def recipe_name(self) -> RecipeName:
        """The facts that a recipe has in its file name."""
        return RecipeName(self.model.prefix, self.precision, self.hw, ENGINE, speculative=True)

    @property
    def served(self) -> str:
        """Hugging Face id of the checkpoint, which is also the served name."""
        return self.model.checkpoint(self.precision)

    def settings(self) -> dict[str, str]:
        """What a recipe's caller would have to export: topology, and room for prompt and answer."""
        prompt_set = self.model.prompt_set
        return {
            "MODEL": self.served,
            "MODEL_PREFIX": self.model.prefix,
            "TP": str(self.tp),
            "EP_SIZE": str(self.ep),
            "MAX_MODEL_LEN": str(self.max_model_len),
            "CONC": str(prompt_set.concurrency),
            "ISL": str(self.max_model_len - prompt_set.output_len),
            "OSL": str(prompt_set.output_len),
        }

    def words(self, what: str) -> list[str]:
        """Words for cell.sh: `speculate` (method and keys), `environment` or `arguments`."""
        if what == "speculate":
            return [self.method, *(f"{key}={value}" for key, value in self.speculation.items())]
        if what == "environment":
            return [f"{key}={value}" for key, value in self.environment.items()]
        words = list(self.arguments)
        if parser := self.model.reasoning_parser.get(ENGINE):
            words += ["--reasoning-parser", parser]
        if self.model_revision and COMMIT.fullmatch(self.model_revision):
            words += ["--revision", self.model_revision]
        return words


def load(name: str, path: Path = models.MODELS_FILE) -> Row:
    """One collection with its model.

    Raises:
        UsageError: unreadable file, unknown collection or model, a thinking mode that the model
            hasn't, or no room for the longest answer.
    """
    row = models.collection(name, path)
    model = models.load(row.pop("model"), path)
    row["ep"] = row.get("ep", 1)
    lists = {key: tuple(row[key]) for key in ("num_speculative_tokens", "thinking", "arguments")}
    found = Row(name, model, **{**row, **lists})
    for mode in found.thinking:
        model.mode(mode)
    if not found.max_model_len > model.prompt_set.output_len:
        raise UsageError(
            f"collection {name}: max_model_len {found.max_model_len} leaves no room for a prompt, "
            f"answers have up to {model.prompt_set.output_len} tokens"
        )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print words of a row, NUL-terminated, for cell.sh."""
    parser = argparse.ArgumentParser(prog="utils.golden.rows", description=main.__doc__)
    parser.add_argument("collection")
    parser.add_argument("what", choices=("speculate", "environment", "arguments"))
    options = parser.parse_args(argv)
    words = load(options.collection).words(options.what)
    sys.stdout.write("".join(f"{word}\0" for word in words))
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
