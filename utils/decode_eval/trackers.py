"""Trackers as a session's log_metrics: each point is drawn at its snapshot's step.

A Hugging Face Trainer needs none of them, its own go through the callback.
"""

from __future__ import annotations

from typing import Any

from utils.decode_eval.loop import SNAPSHOT_STEP, LogMetrics, Metrics


def wandb(run: Any) -> LogMetrics:
    """A run of W&B, whose own step can't go back: the snapshot's is defined as the axis."""
    run.define_metric("train/tau_*", step_metric=SNAPSHOT_STEP)

    def log(values: Metrics, step: int) -> None:
        run.log(values, step=step)

    return log


def tensorboard(writer: Any) -> LogMetrics:
    """A SummaryWriter."""

    def log(values: Metrics, _step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, int(values[SNAPSHOT_STEP]))

    return log


def mlflow(module: Any) -> LogMetrics:
    """The module mlflow, or a client of it that is bound to a run."""

    def log(values: Metrics, _step: int) -> None:
        module.log_metrics(values, step=int(values[SNAPSHOT_STEP]))

    return log
