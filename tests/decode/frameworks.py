"""One training in several frameworks: `frameworks.py FOLDER KIND…`, of plain hf accelerate ddp.

The gradient of every weight is 1 whatever the data, so that all of them come to the same weights.
FOLDER/KIND has the block and gets the metrics that are logged. For the embedded engine's Python.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from utils import decode_eval

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
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Tiny(PretrainedConfig()))
    with decode_eval.session(config_of(folder), log_metrics=log_to(folder)) as session:
        loop(session, accelerator.unwrap_model(model), accelerator.backward)


def ddp(folder: Path) -> None:
    """Both ranks make the same calls; the eval takes longer than a collective may."""
    from torch import distributed

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
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from utils.decode_eval.callback import DecodeEvalCallback

    class Tracker(TrainerCallback):
        """Stands for any tracker: it sees what goes through Trainer.log."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "train/tau_real" in logs:
                log_to(folder)(logs, state.global_step)

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


if __name__ == "__main__":
    for name in sys.argv[2:]:
        kinds = {"plain": plain, "hf": hf, "accelerate": accelerate, "ddp": ddp}
        kinds[name](Path(sys.argv[1]) / name)
