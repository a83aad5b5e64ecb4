"""One training in several frameworks: `frameworks.py FOLDER PORT`; PORT is for two ranks to meet.

The gradient of every weight is 1 whatever the data, so that all of them come to the same weights.
FOLDER/KIND has the block and gets the metrics that are logged. For the embedded engine's Python.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import distributed
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.integrations.integration_utils import rewrite_logs

from utils import decode_eval
from utils.decode_eval.callback import DecodeEvalCallback

STEPS = 8
COLLECTIVE_TIMEOUT_S = 4.0


class Tiny(PreTrainedModel):
    """A model whose loss is the sum of its weights."""

    config_class = PretrainedConfig

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(8, 8)
        self.post_init()

    def forward(self, x: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        return {"loss": sum(p.sum() for p in self.parameters()) + 0 * x.sum()}


def log_to(folder: Path) -> Any:
    def log(values: dict[str, float], step: int) -> None:
        with (folder / "metrics.jsonl").open("a") as file:
            print(json.dumps(values), file=file)

    return log


def config_of(folder: Path) -> Any:
    return decode_eval.resolve_decode_eval_config(json.loads((folder / "block.json").read_text()))


def loop(session: decode_eval.Session, model: Any, backward: Any, each: Any = lambda: None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    session.step(0, model)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        backward(model(x=torch.ones(2, 8))["loss"])
        optimizer.step()
        each()
        session.step(step, model)


def plain(folder: Path) -> None:
    with decode_eval.session(config_of(folder), log_metrics=log_to(folder)) as session:
        loop(session, Tiny(PretrainedConfig()), lambda loss: loss.backward())


def accelerate(folder: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Tiny(PretrainedConfig()))
    with decode_eval.session(config_of(folder), log_metrics=log_to(folder)) as session:
        loop(session, accelerator.unwrap_model(model), accelerator.backward)


def ddp(folder: Path, rank: int, port: str) -> None:
    """Both ranks make the same calls; the eval takes longer than a collective may."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    distributed.init_process_group("gloo")
    impatient = distributed.new_group(timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S))
    model = torch.nn.parallel.DistributedDataParallel(Tiny(PretrainedConfig()))
    began = time.monotonic()

    def each() -> None:
        time.sleep(0.8)
        distributed.all_reduce(torch.ones(1), group=impatient)

    session = decode_eval.session(config_of(folder), log_metrics=log_to(folder))
    loop(session, model, lambda loss: loss.backward(), each)
    distributed.barrier(impatient)
    took = time.monotonic() - began
    if session.runner:
        assert session.runner.busy, "the eval must outlast the training"
        assert took > COLLECTIVE_TIMEOUT_S
    session.finish()
    distributed.destroy_process_group()


def hf(folder: Path) -> None:
    class Tracker(TrainerCallback):
        """Stands for any tracker: it sees what goes through Trainer.log, named as they do."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "tau_real" in logs:
                log_to(folder)(rewrite_logs(logs), state.global_step)

    model = Tiny(PretrainedConfig())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    arguments = TrainingArguments(
        output_dir=str(folder / "hf"),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        max_grad_norm=0.0,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=[{"x": torch.ones(8)}] * 64,
        optimizers=(optimizer, constant),
        callbacks=[Tracker()],
    )
    DecodeEvalCallback(config_of(folder)).attach(trainer)
    trainer.train()


def main(root: Path, port: str) -> int:
    """All at the same time, forked: what takes seconds to import is imported once."""
    fork = multiprocessing.get_context("fork")
    runs = [
        fork.Process(target=one, args=(root / one.__name__,)) for one in (plain, hf, accelerate)
    ]
    runs += [fork.Process(target=ddp, args=(root / "ddp", rank, port)) for rank in range(2)]
    for process in runs:
        process.start()
    for process in runs:
        process.join()
    return sum(process.exitcode != 0 for process in runs)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2]))
