"""A draft as it is now, in a folder that can be served: exported from training, or a checkpoint."""

# torch is not installed where mypy runs.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import copy
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils import records
from utils.decode_eval import weights
from utils.errors import NotMeasured, UsageError
from utils.records import Json

# Of bytes needed; file systems and other writers take some.
SPARE = 1.05


@dataclass(frozen=True)
class Snapshot:
    """Weights and their config.json in `folder`.

    size_bytes: written for it, 0 for a checkpoint that was there. export_s: how long training
    waited. file_bytes, modified_ns: size and last change of the weights' files as they were left.
    Their digest is not taken here: hashing takes longer than writing, and training would wait.
    """

    folder: Path
    size_bytes: int
    export_s: float
    file_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, folder: Path, size_bytes: int, export_s: float) -> Snapshot:
        """A folder that has just been written or found."""
        return cls(folder, size_bytes, export_s, *_stamp(folder))

    def require_unchanged(self) -> None:
        """Whoever reads the weights calls this before and after: they are those of the export.

        Raises:
            NotMeasured: the file is gone, or has another size or time.
        """
        try:
            found = _stamp(self.folder)
        except (OSError, UsageError) as error:
            raise NotMeasured(f"the weights are gone: {error}", "weights_changed") from error
        if found != (self.file_bytes, self.modified_ns):
            raise NotMeasured(
                f"{self.folder} has changed since its export: write checkpoints to new folders",
                "weights_changed",
            )


def _stamp(folder: Path) -> tuple[int, int]:
    found = [file.stat() for file in weights.files(folder)]
    return sum(one.st_size for one in found), max(one.st_mtime_ns for one in found)


def export_draft_snapshot(
    draft_model: Any, out_dir: Path, *, state_dict: Mapping[str, Any] | None = None
) -> Snapshot:
    """Write out_dir/model/consolidated/{model.safetensors,config.json}, whole or not at all.

    Every tensor keeps its type; buffers such as d2t and t2d go along. draft_model needs a `config`:
    a Transformers configuration or a mapping. DDP and torch.compile are unwrapped; PEFT adapters
    are merged, in a copy. Of a sharded model (FSDP2, DTensor) state_dict is the whole one, from
    gather_state_dict().

    Raises:
        UsageError: no usable config, or a sharded model without state_dict.
        NotMeasured: the disk lacks room.
    """
    from safetensors.torch import save_file

    began = time.monotonic()
    model = unwrapped(draft_model)
    if hasattr(model, "merge_and_unload"):  # PEFT; the model that trains stays as it is
        model = copy.deepcopy(model).merge_and_unload()
    config = _config(model)
    given = model.state_dict() if state_dict is None else state_dict
    tensors = _separate(given, bool(config.get("tie_word_embeddings")))
    size = sum(tensor.nbytes for tensor in tensors.values())
    final = out_dir / "model" / "consolidated"
    fresh = final.with_name(f".consolidated.{os.getpid()}")
    _remove(fresh)
    fresh.mkdir(parents=True)
    try:
        _require_room(fresh, size)
        # First, for its fsync would wait for the weights to reach the disk.
        records.write_json(fresh / weights.CONFIG, config)
        save_file(tensors, fresh / weights.FILE, metadata={"format": "pt"})
        _remove(final)
        fresh.rename(final)
    except BaseException:
        shutil.rmtree(fresh)
        raise
    return Snapshot.of(final, size, time.monotonic() - began)


def use_checkpoint(path: Path, out_dir: Path) -> Snapshot:
    """A checkpoint that is there already, without a copy: out_dir/model/consolidated links to it.

    Raises:
        UsageError: it has no config.json, or no weights in safetensors files.
    """
    began = time.monotonic()
    if not (path / weights.CONFIG).is_file():
        raise UsageError(f"{path} has no {weights.CONFIG}: name the folder that has the weights")
    weights.read(path)
    link = out_dir / "model" / "consolidated"
    link.parent.mkdir(parents=True, exist_ok=True)
    _remove(link)
    link.symlink_to(path.absolute(), target_is_directory=True)
    return Snapshot.of(link, 0, time.monotonic() - began)


def gather_state_dict(model: Any) -> dict[str, Any]:
    """The whole state of a sharded model, on the CPU: every rank calls it, rank 0 gets it.

    A collective: call it at the same step on every rank, outside what rank 0 alone does.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return dict(get_model_state_dict(model, options=options))


def unwrapped(model: Any) -> Any:
    """The model below DistributedDataParallel, DataParallel and torch.compile."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):  # importing torch.compile's class takes seconds
            model = model._orig_mod
        else:
            return model


def _config(model: Any) -> Json:
    """config.json's content; the architecture is the class's name where none is said."""
    found = getattr(model, "config", None)
    if found is not None and hasattr(found, "to_dict"):
        found = found.to_dict()
    if not isinstance(found, Mapping):
        raise UsageError(
            f"{type(model).__name__} has no config: give it one, a Transformers configuration or a "
            "dict with the fields of config.json, architectures among them"
        )
    config = dict(found)
    config["architectures"] = config.get("architectures") or [type(model).__name__]
    return config


def _separate(state: Mapping[str, Any], tied: bool) -> dict[str, Any]:
    """Tensors on the CPU, contiguous, no two in the same memory.

    Of names for the very same tensor the first stays where the config says that embeddings are
    tied, for then the reader ties them again; else each name gets a copy.
    """
    import torch

    found: dict[str, Any] = {}
    taken: dict[tuple[Any, int], Any] = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"state {name} is a {type(value).__name__}; only tensors can be saved")
        if hasattr(value, "full_tensor"):
            raise UsageError(
                f"{name} is sharded: call gather_state_dict(model) on every rank and hand the "
                "result over as state_dict"
            )
        source = value.detach()
        memory = source.untyped_storage().data_ptr()
        first = taken.setdefault((source.device, memory), source)
        if first is not source and memory:  # an empty tensor has none
            if tied and first.shape == source.shape and first.data_ptr() == source.data_ptr():
                continue
            source = source.clone()
        tensor = source.to("cpu").contiguous()
        found[name] = tensor
    return found


def _require_room(folder: Path, size: int) -> None:
    free, need = shutil.disk_usage(folder).free, int(size * SPARE)
    if free < need:
        raise NotMeasured(
            f"{folder.parent} has {free / 1e9:.2f} GB free, the snapshot needs {need / 1e9:.2f}: "
            "make room or move output_dir",
            "disk_full",
        )


def _remove(path: Path) -> None:
    """A snapshot of ours; of a checkpoint the link alone."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
