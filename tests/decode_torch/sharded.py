"""One of two gloo processes that export the same model, replicated and sharded."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.decode import support
from utils.decode_eval import snapshot
from utils.errors import UsageError


def train_with_the_callback(folder: Path, model: torch.nn.Module, main: bool) -> None:
    """What a Trainer calls on every rank, for a training of no steps."""
    from utils.decode_eval.callback import DecodeEvalCallback

    folder.mkdir(exist_ok=True)
    config = support.config(folder)
    callback = DecodeEvalCallback(config, gather=snapshot.gather_state_dict)
    state = SimpleNamespace(global_step=0, is_world_process_zero=main)
    callback.on_train_begin(None, state, None, model=model)
    callback.on_train_end(None, state, None, model=model)


def rank(number: int, folder: Path) -> None:
    from tests.decode_torch.torch_cases import llama

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=number, world_size=2)
    replicated = DistributedDataParallel(llama())
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    model = llama()
    fully_shard(model, mesh=mesh)
    whole = snapshot.gather_state_dict(model)  # a collective: every rank
    if number == 0:
        snapshot.export_draft_snapshot(replicated, folder / "ddp")
        snapshot.export_draft_snapshot(model, folder / "fsdp", state_dict=whole)
        try:
            snapshot.export_draft_snapshot(model, folder / "part")
        except UsageError as error:
            (folder / "refused").write_text(str(error))
    train_with_the_callback(folder / "callback", model, main=number == 0)
    distributed.barrier()
    distributed.destroy_process_group()
