"""A safetensors file by its header: names, shapes, digest, and other names for the same bytes.

The harness has no torch, and none is needed: tensors are never changed here, only looked up and
renamed. The format: 8 bytes little-endian length of a JSON header, the header, the tensors' bytes
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import array
import hashlib
import json
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import UsageError

FILE, CONFIG = "model.safetensors", "config.json"
CHUNK = 1 << 24
_MOST_HEADER = 100_000_000  # the format's own limit
_INTEGERS = {"I64": "q", "I32": "i", "BOOL": "B", "U8": "B"}


@dataclass(frozen=True)
class Tensor:
    """dtype: safetensors' name of it. start, end: its bytes, from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Weights:
    """offset: where the tensors' bytes start, bytes. metadata: text by name, kept as it is."""

    path: Path
    offset: int
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]

    def integers(self, name: str) -> list[int]:
        """A small tensor of whole numbers or booleans.

        Raises:
            UsageError: it is of another type.
        """
        tensor = self.tensors[name]
        if tensor.dtype not in _INTEGERS:
            raise UsageError(f"{self.path}: {name} is {tensor.dtype}, want whole numbers")
        values = array.array(_INTEGERS[tensor.dtype])
        with self.path.open("rb") as file:
            file.seek(self.offset + tensor.start)
            values.frombytes(file.read(tensor.end - tensor.start))
        if sys.byteorder == "big":
            values.byteswap()
        return values.tolist()


def read(folder: Path) -> Weights:
    """The header of a folder's weights.

    Raises:
        UsageError: no model.safetensors, or one that is broken or cut short.
    """
    path = folder / FILE
    if not path.is_file():
        raise UsageError(
            f"{folder} has no {FILE}: weights in shards or in another format can't be served from "
            "here; save them with safetensors in one file"
        )
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MOST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            header = records.parse_json(file.read(length).decode())
        metadata = header.pop("__metadata__", {})
        tensors = {name: _tensor(entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise UsageError(f"{path} is not a safetensors file ({error})") from error
    whole = 8 + length + max([tensor.end for tensor in tensors.values()], default=0)
    if size != whole:
        raise UsageError(f"{path} has {size} bytes, its header says {whole}: it is cut short")
    return Weights(path, 8 + length, tensors, metadata)


def _tensor(entry: Any) -> Tensor:
    start, end = entry["data_offsets"]
    return Tensor(entry["dtype"], tuple(entry["shape"]), start, end)


def write_renamed(weights: Weights, names: Mapping[str, str], path: Path) -> None:
    """The same weights with tensors named anew; names: old → new, of all that is kept.

    Where nothing changes the file is linked, not copied.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if names == {name: name for name in weights.tensors}:
        _link(weights.path.resolve(), path)
        return
    header: dict[str, Any] = {"__metadata__": dict(weights.metadata)} if weights.metadata else {}
    end = 0
    for name in names:
        tensor = weights.tensors[name]
        start, end = end, end + tensor.end - tensor.start
        header[names[name]] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with weights.path.open("rb") as source, path.open("wb") as target:
        target.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            tensor = weights.tensors[name]
            source.seek(weights.offset + tensor.start)
            left = tensor.end - tensor.start
            while left:
                left -= target.write(source.read(min(left, CHUNK)))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def digest(tensors: Iterable[tuple[str, tuple[int, ...], Callable[[], Iterable[Any]]]]) -> str:
    """SHA-256 over (name, shape, bytes) in the order of the names, however the file lays them out.

    tensors: name, shape, and what gives its bytes in parts.
    """
    total = hashlib.sha256()
    for name, shape, parts in sorted(tensors, key=lambda entry: entry[0]):
        total.update(f"{name}{list(shape)}\0".encode())
        for part in parts():
            total.update(part)
    return total.hexdigest()


def digest_of(weights: Weights) -> str:
    """The same digest, of a file."""

    def parts(tensor: Tensor) -> Callable[[], Iterable[bytes]]:
        def read_parts() -> Iterable[bytes]:
            with weights.path.open("rb") as file:
                file.seek(weights.offset + tensor.start)
                for start in range(tensor.start, tensor.end, CHUNK):
                    yield file.read(min(CHUNK, tensor.end - start))

        return read_parts

    return digest((name, t.shape, parts(t)) for name, t in weights.tensors.items())
