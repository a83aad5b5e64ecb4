"""Decode eval in a Hugging Face Trainer: `DecodeEvalCallback(config).attach(trainer)`.

Import it where transformers is; nothing else here does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from utils.decode_eval.config import DecodeEvalConfig
from utils.decode_eval.loop import Metrics, Session, session
from utils.decode_eval.runner import Export, State
from utils.decode_eval.snapshot import export_draft_snapshot


class DecodeEvalCallback(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """draft_of: the draft within the Trainer's model. on_saves, on_epochs: more evals, then.

    gather: of a sharded draft, snapshot.gather_state_dict; every rank then enters that collective
    wherever an eval may be due. Points go through Trainer.log, and so to every tracker that it
    reports to.
    """

    def __init__(
        self,
        config: DecodeEvalConfig | None,
        *,
        draft_of: Callable[[Any], Any] = lambda model: model,
        export: Export = export_draft_snapshot,
        gather: Callable[[Any], State] | None = None,
        on_saves: bool = False,
        on_epochs: bool = False,
    ) -> None:
        self._config, self._draft_of, self._export = config, draft_of, export
        self._gather = gather if config else None
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
        self._step(state.global_step, kwargs["model"])

    def on_step_end(self, _args: Any, state: Any, _control: Any, **kwargs: Any) -> None:
        self._step(state.global_step, kwargs["model"])

    def on_save(self, _args: Any, state: Any, _control: Any, **kwargs: Any) -> None:
        if self._on_saves:
            self._measure(state.global_step, kwargs["model"])

    def on_epoch_end(self, _args: Any, state: Any, _control: Any, **kwargs: Any) -> None:
        if self._on_epochs:
            self._measure(state.global_step, kwargs["model"])

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **kwargs: Any) -> None:
        self._session.finish(state_dict=self._whole(self._draft_of(kwargs["model"])))

    def _step(self, step: int, model: Any) -> None:
        draft = self._draft_of(model)
        whole = self._whole(draft) if self._session.boundary(step) else None
        self._session.step(step, draft, state_dict=whole)

    def _measure(self, step: int, model: Any) -> None:
        draft = self._draft_of(model)
        self._session.measure(step, draft, state_dict=self._whole(draft))

    def _whole(self, draft: Any) -> State | None:
        return self._gather(draft) if self._gather else None

    def _log(self, values: Metrics, _step: int) -> None:
        if self._trainer is not None:  # whose trackers put train/ before every name
            self._trainer.log({name.removeprefix("train/"): v for name, v in values.items()})
