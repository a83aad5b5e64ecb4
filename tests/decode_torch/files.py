"""Small snapshots, written byte by byte: a converter reads no more than names, shapes and d2t."""

from __future__ import annotations

import array
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from utils.decode_eval import weights

SIZES = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 16,
}
LAYER = {
    "self_attn.k_proj.weight": (4, 8),
    "self_attn.o_proj.weight": (8, 8),
    "self_attn.q_proj.weight": (8, 8),
    "self_attn.v_proj.weight": (4, 8),
    "mlp.down_proj.weight": (8, 12),
    "mlp.gate_proj.weight": (12, 8),
    "mlp.up_proj.weight": (12, 8),
    "input_layernorm.weight": (8,),
    "post_attention_layernorm.weight": (8,),
}
Shapes = dict[str, tuple[int, ...]]
QKV_BIASES: Shapes = {
    "self_attn.q_proj.bias": (8,),
    "self_attn.k_proj.bias": (4,),
    "self_attn.v_proj.bias": (4,),
}


def layer(prefix: str, wide: int = 1, more: Mapping[str, tuple[int, ...]] = {}) -> Shapes:
    shapes = {**LAYER, **more}
    for name in ("q", "k", "v"):
        rows, size = shapes[f"self_attn.{name}_proj.weight"]
        shapes[f"self_attn.{name}_proj.weight"] = (rows, wide * size)
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def eagle3(prefix: str = "midlayer") -> Shapes:
    return {
        "fc.weight": (8, 24),
        "norm.weight": (8,),
        "lm_head.weight": (4, 8),
        **layer(prefix, wide=2, more={"hidden_norm.weight": (8,)}),
    }


EAGLE3 = {
    **SIZES,
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "draft_vocab_size": 4,
}
# Draft tokens 0..3 are tokens 1, 3, 5, 15 of the target.
D2T = [1, 2, 3, 12]
T2D = [int(i in (1, 3, 5, 15)) for i in range(16)]


def write(
    folder: Path,
    config: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    d2t: Sequence[int] | None = None,
    t2d: Sequence[int] | None = None,
) -> Path:
    """A snapshot; every tensor's bytes tell it from the others."""
    tensors: dict[str, tuple[str, Sequence[int], bytes]] = {}
    if d2t is not None:
        tensors["d2t"] = ("I64", [len(d2t)], array.array("q", d2t).tobytes())
    for index, (name, shape) in enumerate(shapes.items()):
        tensors[name] = ("BF16", shape, bytes([index % 256]) * (2 * math.prod(shape)))
    if t2d is not None:
        tensors["t2d"] = ("BOOL", [len(t2d)], bytes(t2d))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder / weights.FILE, tensors)
    return folder


def write_tensors(path: Path, tensors: Mapping[str, tuple[str, Sequence[int], bytes]]) -> None:
    """A file of (type, shape, bytes) by name."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def split(folder: Path, *groups: Sequence[str], index: Mapping[str, str] = {}) -> Path:
    """The same snapshot in shards, one for each group of names, and more of an index."""
    found = weights.read(folder)
    placed: dict[str, str] = {}
    for number, names in enumerate(groups, start=1):
        file = f"model-{number:05}-of-{len(groups):05}.safetensors"
        part = replace(found, tensors={name: found.tensors[name] for name in names})
        weights.write_file(part, {name: name for name in names}, folder / file)
        placed |= dict.fromkeys(names, file)
    found.path.unlink()
    text = json.dumps({"metadata": {}, "weight_map": {**placed, **index}})
    (folder / weights.INDEX).write_text(text)
    return folder
