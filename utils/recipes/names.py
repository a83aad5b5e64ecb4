"""Recipe file names and the facts in them: <model>_<precision>_<hw>_<engine>[_mtp].sh."""

from __future__ import annotations

import re
from dataclasses import dataclass

from utils.errors import UsageError

GRAMMAR = "<model>_<precision>_<hw>_<engine>[_mtp].sh"
PRECISIONS = ("bf16", "fp16", "fp8", "fp4", "nvfp4", "mxfp4", "int8", "int4")
ENGINES = ("vllm", "sglang", "trt", "dynamo-vllm", "dynamo-sglang", "dynamo-trt")

_NAME = re.compile(
    r"(?P<model>[a-z0-9]+(?:[.-][a-z0-9]+)*)"
    rf"_(?P<precision>{'|'.join(PRECISIONS)})"
    r"_(?P<hw>[a-z0-9]+)"
    rf"_(?P<engine>{'|'.join(ENGINES)})"
    r"(?P<speculative>_mtp)?\.sh"
)


@dataclass(frozen=True)
class RecipeName:
    """What a recipe's file name says; `speculative` is any method, not only MTP."""

    model: str
    precision: str
    hw: str
    engine: str
    speculative: bool = False

    @property
    def file_name(self) -> str:
        suffix = "_mtp" if self.speculative else ""
        return f"{self.model}_{self.precision}_{self.hw}_{self.engine}{suffix}.sh"

    @property
    def disaggregated(self) -> bool:
        """Does it take nodes for prefill and decode apart, under Dynamo?"""
        return self.engine.startswith("dynamo-")

    @property
    def engine_family(self) -> str:
        """Whose flags and metrics apply: Dynamo's workers are the engine's own."""
        return self.engine.removeprefix("dynamo-")


def parse(file_name: str) -> RecipeName:
    """The facts in a file name.

    Raises:
        UsageError: it doesn't follow the grammar.
    """
    match = _NAME.fullmatch(file_name)
    if not match:
        raise UsageError(
            f"{file_name!r} is not a recipe name: want {GRAMMAR} with precision "
            f"{'|'.join(PRECISIONS)} and engine {'|'.join(ENGINES)}"
        )
    model, precision, hw, engine, suffix = match.groups()
    return RecipeName(model, precision, hw, engine, speculative=suffix is not None)


def version_key(version: str) -> tuple[int, ...]:
    """Versions in order; what follows the numbers (`.post1`, `rc2`) is passed over."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    if not found:
        raise UsageError(f"{version!r} is no version, want numbers and dots")
    return tuple(map(int, found[0].split(".")))
