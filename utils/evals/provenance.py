"""Whether a result was made by this run, for this model: by what is in it, never by mtime."""

from __future__ import annotations

from typing import Any

from utils import records
from utils.errors import NotMeasured
from utils.evals.expected import Expected


class ThisRun:
    """What the run says of itself, as far as anybody says anything."""

    def __init__(self, asked: Expected) -> None:
        plan = asked.plan or {}
        said = (
            ("run_id", asked.run_id, "other_run"),
            ("commit", plan.get("commit"), "other_run"),
            ("prefix", asked.prefix, "other_model"),
            ("model", plan.get("model"), "other_model"),
            ("method", plan.get("spec_decoding"), "other_method"),
        )
        self.started = asked.started
        self.said = [row for row in said if row[1] is not None]

    def check(self, *, started: float | None, **said: Any) -> None:
        """That a result belongs here; what it can't say of its kind is left out by the caller.

        Raises:
            NotMeasured: it is older, of another run or model, or doesn't say.
        """
        if self.started is not None:
            if started is None:
                text = "it doesn't say when it was measured: measure again with its own writer"
                raise NotMeasured(text, "stale")
            if not started >= self.started:
                raise NotMeasured(
                    f"measured {records.format_time(started)}, before this run began "
                    f"({records.format_time(self.started)}): a leftover; remove it, see why "
                    "nothing new was written",
                    "stale",
                )
        for name, wanted, reason in self.said:
            if name in said and said[name] != wanted:
                has = f"its {name} is {said[name]}, this run's {wanted}"
                raise NotMeasured(f"{has}; find out whose file it is, and remove it", reason)
