"""Whether a folder of weights is whole: half a shard makes an engine fail after minutes."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import NotMeasured

INDEX = "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json")
LARGEST_HEADER = 100 << 20  # the format's own limit
SHARD = re.compile(r"-\d{5}-of-(?P<of>\d{5})\.safetensors$")
REMEDY = "download the model again"


def problems(folder: Path) -> Iterator[str]:
    """Everything that keeps an engine from loading it, as text with the remedy."""
    try:
        records.read_json(folder / "config.json")
    except NotMeasured as error:
        yield f"{error}: {REMEDY}"
    if not any((folder / name).exists() for name in TOKENIZERS):
        yield f"{folder} has no tokenizer ({', '.join(TOKENIZERS)}): {REMEDY}"
    if leftovers := sorted(path.name for path in folder.rglob("*.incomplete")):
        yield f"{folder} holds {', '.join(leftovers[:3])}: a download was cut off, {REMEDY}"
    if (folder / INDEX).exists():
        yield from _indexed(folder)
    else:
        yield from _without_index(folder)


def _indexed(folder: Path) -> Iterator[str]:
    try:
        index = records.read_json(folder / INDEX)
        wanted: dict[str, set[str]] = {}
        for tensor, file in index["weight_map"].items():
            wanted.setdefault(file, set()).add(tensor)
    except (NotMeasured, KeyError, TypeError, AttributeError) as error:
        yield f"{folder / INDEX} can't be used ({error}): {REMEDY}"
        return
    for file, tensors in sorted(wanted.items()):
        if not (folder / file).is_file():
            yield f"{folder / file} is in the index and not there: {REMEDY}"
        else:
            yield from shard_problems(folder / file, tensors)


def _without_index(folder: Path) -> Iterator[str]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        yield f"{folder} holds no safetensors: name the folder of the weights, or {REMEDY}"
    for path in files:
        if SHARD.search(path.name):
            yield f"{folder / INDEX} is missing beside {path.name}: {REMEDY}"
            return
        yield from shard_problems(path, set())


def shard_problems(path: Path, tensors: set[str]) -> Iterator[str]:
    """A safetensors file against its own header, and against the tensors that it must hold."""
    try:
        header, begins = _header(path)
        ends = max((int(row["data_offsets"][1]) for row in header.values()), default=0)
    except (OSError, ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        yield f"{path} has no sound header ({error}): {REMEDY}"
        return
    size = path.stat().st_size
    if size != begins + ends:
        yield f"{path} has {size} bytes, its header wants {begins + ends}: {REMEDY}"
    if missing := sorted(tensors - header.keys()):
        yield f"{path} lacks {len(missing)} tensors of the index, first {missing[0]}: {REMEDY}"


def _header(path: Path) -> tuple[Mapping[str, Any], int]:
    """(tensors, where their bytes begin): 8 bytes of length, then JSON, then the tensors."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > LARGEST_HEADER:
            raise ValueError(f"a header of {length} bytes")
        header = dict(json.loads(file.read(length)))
    header.pop("__metadata__", None)
    return header, 8 + length


def sizes(folder: Path) -> list[int]:
    """Bytes of every safetensors file."""
    return [path.stat().st_size for path in folder.glob("*.safetensors")]
