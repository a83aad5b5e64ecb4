"""Decode eval in a Hugging Face Trainer: `DecodeEvalCallback(config).attach(trainer)`.

Import it where transformers is; nothing else here does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from utils.decode_eval.config import DecodeEvalConfig
from utils.decode_eval.loop import Metrics, Session, session
from utils.decode_eval.runner import Export
from utils.decode_eval.snapshot import export_draft_snapshot


class DecodeEvalCallback(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """draft_of: the draft within the Trainer's model. on_saves, on_epochs: more evals, then.

    Points go through Trainer.log, and so to every tracker that it reports to.
    """

    def __init__(
        self,
        config: DecodeEvalConfig | None,
        *,
        draft_of: Callable[[Any], Any] = lambda model: model,
        export: Export = export_draft_snapshot,
        on_saves: bool = False,
        on_epochs: bool = False,
    ) -> None:
        self._config, self._draft_of, self._export = config, draft_of, export
        self._on_saves, self._on_epochs = on_saves, on_epochs
        self._session = Session()
        self._trainer: Any = None

    def attach(self, trainer: Any) -> DecodeEvalCallback:
        """Join a Trainer, and log through it."""
        self._trainer = trainer
        trainer.add_callback(self)
        return self

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **kwargs: Any) -> None:
        self._session = session(
            self._config,
            log_metrics=self._log,
            export=self._export,
            is_main=state.is_world_process_zero,
        )
        self._session.step(state.global_step, self._draft_of(kwargs["model"]))

    def on_step_end(self, _args: Any, state: Any, _control: Any, **kwargs: Any) -> None:
        self._session.step(state.global_step, self._draft_of(kwargs["model"]))

    def on_save(self, _args: Any, state: Any, _control: Any, **kwargs: Any) -> None:
        if self._on_saves:
            self._session.measure(state.global_step, self._draft_of(kwargs["model"]))

    def on_epoch_end(self, _args: Any, state: Any, _control: Any, **kwargs: Any) -> None:
        if self._on_epochs:
            self._session.measure(state.global_step, self._draft_of(kwargs["model"]))

    def on_train_end(self, *_args: Any, **_kwargs: Any) -> None:
        self._session.finish()

    def _log(self, values: Metrics, _step: int) -> None:
        if self._trainer is not None:
            self._trainer.log(values)
