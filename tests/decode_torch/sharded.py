"""One of two gloo processes that export the same model, replicated and sharded."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from utils.decode_eval import snapshot
from utils.errors import UsageError


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
    distributed.barrier()
    distributed.destroy_process_group()
