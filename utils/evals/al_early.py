"""`measure --stop-early`: the order of sending, and a decision after each batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from utils.acceptance import measure, tally
from utils.acceptance.batches import Batches
from utils.acceptance.client import Answer
from utils.acceptance.engines import Engine
from utils.errors import NotMeasured, UsageError
from utils.evals import al_attempt
from utils.evals.prompt_files import PromptFile
from utils.golden import early, match
from utils.golden.early import Look
from utils.golden.registry import Golden, Registry
from utils.records import Json


def in_order(
    prompts: PromptFile, turns: str, concurrency: int, goldens: Registry | None
) -> PromptFile:
    """The prompts in the order of sending.

    Raises:
        UsageError: nothing could be decided before all of them are sent.
    """
    if not goldens:
        raise UsageError("--stop-early decides by a golden: leave out --no-gate")
    if turns != "first":
        raise UsageError("--stop-early compares single prompts: leave out --turns all")
    n, tolerances = len(prompts.prompts), goldens.tolerances
    if len(early.looks(n, concurrency, tolerances)) < 2:
        raise UsageError(
            f"--stop-early needs batches of at least the concurrency, {concurrency}; {n} prompts "
            "are too few for two of them: lower --concurrency, or leave out --stop-early"
        )
    order = early.order(n, tolerances)
    return replace(prompts, prompts=tuple(prompts.prompts[place] for place in order))


@dataclass
class EarlyStop:
    """Decides after each batch; keeps what it saw at every look for the record."""

    goldens: Registry
    engine: Engine
    record: Json
    seen: measure.Observation
    looks: list[Look] = field(default_factory=list)
    undecidable: str | None = None

    @property
    def ends(self) -> list[int]:
        sent = self.record["workload"]
        return early.looks(sent["prompts"], sent["concurrency"], self.goldens.tolerances)

    def batches(self) -> Batches:
        return Batches(self.ends, self.enough)

    def enough(self, answers: Sequence[Answer]) -> bool:
        """Whether the answers so far decide."""
        if len(answers) == self.record["workload"]["prompts"]:
            return True  # the gate has the last word
        rows = tally.exact_rows(self.engine, answers)
        try:
            golden = self._golden()
        except NotMeasured as error:
            self.undecidable = str(error)
            return False
        if rows is None:
            self.undecidable = f"no exact figures of each request: {self.engine.how_to_enable}"
            return False
        look = early.look(rows, self.ends, golden, self.goldens.tolerances)
        self.looks.append(look)
        print(f"{look}: {look.outcome.value if look.outcome else 'goes on'}")
        return look.outcome is not None

    def _golden(self) -> Golden:
        al_attempt.keep(self.seen, self.record)  # what the server said is part of the key
        share = self.goldens.tolerances["sample"]["min_share"]["value"]
        return match.find(self.record, self.goldens.goldens, share)

    def keep(self) -> None:
        """Put the path into the record."""
        if self.seen.answers:
            self.record["workload"]["requests"] = len(self.seen.answers)
        self.record["early"] = {
            "looks": [look.as_json() for look in self.looks],
            "undecidable": self.undecidable,
        }
