"""Safetensors files by their headers: names, shapes, digest, and other names for the same bytes.

The harness has no torch, and none is needed: tensors are never changed here, only looked up and
renamed. A file: 8 bytes little-endian length of a JSON header, the header, the tensors' bytes
(https://github.com/huggingface/safetensors#format). Large checkpoints are several of them, and an
index that says which tensor is in which.
"""

from __future__ import annotations

import array
import hashlib
import json
import os
import shutil
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import NotMeasured, UsageError

FILE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
CHUNK = 1 << 24
_MOST_HEADER = 100_000_000  # the format's own limit
_INTEGERS = {"I64": "q", "I32": "i", "BOOL": "B", "U8": "B"}


@dataclass(frozen=True)
class Tensor:
    """dtype: safetensors' name of it. start, size: its bytes in the file."""

    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    size: int


@dataclass(frozen=True)
class Weights:
    """path: the one file, or the index of several. metadata: text by name, kept as it is."""

    path: Path
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]

    def integers(self, name: str) -> list[int]:
        """A small tensor of whole numbers or booleans.

        Raises:
            UsageError: it is of another type.
        """
        tensor = self.tensors[name]
        if tensor.dtype not in _INTEGERS:
            raise UsageError(f"{tensor.file}: {name} is {tensor.dtype}, want whole numbers")
        values = array.array(_INTEGERS[tensor.dtype])
        with tensor.file.open("rb") as file:
            file.seek(tensor.start)
            values.frombytes(file.read(tensor.size))
        if sys.byteorder == "big":
            values.byteswap()
        return values.tolist()


def read(folder: Path) -> Weights:
    """The headers of a folder's weights.

    Raises:
        UsageError: no weights, or a file that is broken, cut short, or not as the index says.
    """
    if not (folder / INDEX).is_file():
        (path,) = files(folder)
        tensors, metadata = _header(path)
        return Weights(path, tensors, metadata)
    placed = _index(folder)
    tensors, metadata = {}, {}
    for path in files(folder):
        found, own = _header(path)
        listed = {name for name, file in placed.items() if file == path.name}
        if wrong := sorted(listed ^ found.keys()):
            raise UsageError(
                f"{path} and {INDEX} disagree on {', '.join(wrong)}: every tensor must be in the "
                "one file that the index names; save the checkpoint anew"
            )
        tensors |= found
        metadata |= own
    return Weights(folder / INDEX, tensors, metadata)


def files(folder: Path) -> list[Path]:
    """The files that hold a folder's tensors.

    Raises:
        UsageError: there are none, not all, or two sets of them.
    """
    one, index = (folder / FILE).is_file(), (folder / INDEX).is_file()
    if one and index:
        raise UsageError(f"{folder} has {FILE} and {INDEX}: remove the one that is stale")
    if not (one or index):
        raise UsageError(
            f"{folder} has neither {FILE} nor {INDEX}: weights in another format can't be served "
            "from here; save them with safetensors"
        )
    names = sorted(set(_index(folder).values())) if index else [FILE]
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise UsageError(f"{folder / INDEX} names {', '.join(missing)}, which {folder} lacks")
    return [folder / name for name in names]


def _index(folder: Path) -> dict[str, str]:
    """The file of each tensor."""
    path = folder / INDEX
    try:
        placed = records.read_json(path)["weight_map"]
        if not placed or any(Path(name).name != name for name in placed.values()):
            raise ValueError("weight_map must give each tensor a file of the same folder")
    except (NotMeasured, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no index of weights ({error})") from error
    return dict(placed)


def _header(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of one file."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MOST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            header = records.parse_json(file.read(length).decode())
        metadata = header.pop("__metadata__", {})
        tensors = {n: _tensor(entry, path, 8 + length) for n, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise UsageError(f"{path} is not a safetensors file ({error})") from error
    whole = max([8 + length, *(tensor.start + tensor.size for tensor in tensors.values())])
    if size != whole:
        raise UsageError(f"{path} has {size} bytes, its header says {whole}: it is cut short")
    return tensors, metadata


def _tensor(entry: Any, path: Path, offset: int) -> Tensor:
    start, end = entry["data_offsets"]
    return Tensor(entry["dtype"], tuple(entry["shape"]), path, offset + start, end - start)


def write_renamed(weights: Weights, names: Mapping[str, str], folder: Path) -> None:
    """The same weights with tensors named anew; names: old → new, of all that is kept.

    Where nothing changes the files are linked, not copied; else one file is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    if names == {name: name for name in weights.tensors}:
        for source in {weights.path, *(tensor.file for tensor in weights.tensors.values())}:
            _link(source.resolve(), folder / source.name)
    else:
        write_file(weights, names, folder / FILE)


def write_file(weights: Weights, names: Mapping[str, str], path: Path) -> None:
    """One file of the tensors in `names`, under their new names."""
    header: dict[str, Any] = {"__metadata__": dict(weights.metadata)} if weights.metadata else {}
    end = 0
    for name in names:
        tensor = weights.tensors[name]
        start, end = end, end + tensor.size
        header[names[name]] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as target:
        target.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            for part in _parts(weights.tensors[name]):
                target.write(part)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def _parts(tensor: Tensor, chunk: int = CHUNK) -> Iterator[bytes]:
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        for start in range(0, tensor.size, chunk):
            yield file.read(min(chunk, tensor.size - start))


def equal(one: Tensor, other: Tensor) -> bool:
    """The same numbers in the same type, or in float32 what the other has in bfloat16."""
    wide, narrow = sorted((one, other), key=lambda tensor: -tensor.size)
    if wide.shape != narrow.shape:
        return False
    if wide.dtype == narrow.dtype:
        return all(a == b for a, b in zip(_parts(wide), _parts(narrow), strict=True))
    if (wide.dtype, narrow.dtype) != ("F32", "BF16"):
        return False
    # Little-endian: bfloat16 is the upper half of float32.
    return all(
        not any(a[0::4]) and not any(a[1::4]) and a[2::4] == b[0::2] and a[3::4] == b[1::2]
        for a, b in zip(_parts(wide), _parts(narrow, CHUNK // 2), strict=True)
    )


def digest_of(weights: Weights) -> str:
    """SHA-256 over (name, shape, bytes) in the order of the names, however files lay them out."""
    total = hashlib.sha256()
    for name, tensor in sorted(weights.tensors.items()):
        total.update(f"{name}{list(tensor.shape)}\0".encode())
        for part in _parts(tensor):
            total.update(part)
    return total.hexdigest()
