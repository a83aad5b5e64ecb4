"""Trackers get a point at the step of its snapshot, not of the training that goes on."""

from __future__ import annotations

from unittest.mock import Mock, call

from tests.decode.points import measured, one_set
from utils.decode_eval import trackers
from utils.decode_eval.loop import metrics

VALUES = metrics(measured(30, one_set([(10, 10)] * 2)))
NOW = 47


def test_wandb_draws_over_the_snapshots_step() -> None:
    run = Mock(spec=["define_metric", "log"])
    trackers.wandb(run)(VALUES, NOW)
    assert run.mock_calls == [
        call.define_metric("train/tau_*", step_metric="train/tau_real_step"),
        call.log(VALUES, step=NOW),  # W&B drops what is logged at an earlier step
    ]
    assert VALUES["train/tau_real_step"] == 30


def test_tensorboard_and_mlflow_take_points_of_the_past() -> None:
    writer, module = Mock(spec=["add_scalar"]), Mock(spec=["log_metrics"])
    trackers.tensorboard(writer)(VALUES, NOW)
    trackers.mlflow(module)(VALUES, NOW)
    assert writer.mock_calls == [call.add_scalar(name, v, 30) for name, v in VALUES.items()]
    assert module.mock_calls == [call.log_metrics(VALUES, step=30)]
