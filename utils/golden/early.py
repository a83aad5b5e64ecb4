"""Stop a measurement once its verdict is certain: a group-sequential form of the cell test.

The prompts are sent in an order that a seed fixes, and looked at after each batch. Every look has
its own share of the error rates, fixed beforehand; the shares add up to the whole, so that looking
often costs no more errors than looking once (Lan and DeMets 1983, with the union bound).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from utils.acceptance.estimate import clustered_standard_error
from utils.golden import cell_test, interval
from utils.golden.interval import Rows, Shift
from utils.golden.registry import Golden
from utils.records import Json
from utils.verdicts import Outcome

GO_ON = "go_on"


@dataclass(frozen=True)
class Look:
    """One look: after how many prompts, with which error rate, at what; None decides nothing."""

    prompts: int
    error_rate: float
    shift: Shift | None
    outcome: Outcome | None
    text: str

    def as_json(self) -> dict[str, Any]:
        return {
            "prompts": self.prompts,
            "error_rate": self.error_rate,
            "log_ratio": self.shift.estimate if self.shift else None,
            "standard_error": self.shift.standard_error if self.shift else None,
            "outcome": self.outcome.value if self.outcome else GO_ON,
        }

    def __str__(self) -> str:
        return f"after {self.prompts} prompts: {self.text}"


def order(prompts: int, tolerances: Json) -> list[int]:
    """Positions in the file, in the order of sending: by a hash, the same on every machine."""
    seed = tolerances["early"]["seed"]["value"]

    def place(index: int) -> str:
        return hashlib.sha256(f"{seed}:{index}".encode()).hexdigest()

    return sorted(range(prompts), key=place)


def in_file_order(rows: Rows, tolerances: Json) -> tuple[tuple[int, int], ...]:
    """All rows, put back from the order of sending."""
    places = order(len(rows), tolerances)
    return tuple(row for _, row in sorted(zip(places, rows, strict=True)))


def looks(prompts: int, concurrency: int, tolerances: Json) -> list[int]:
    """After how many prompts to look, the last one being all of them.

    A batch smaller than the concurrency would be another load, and another AL.
    """
    ends: list[int] = []
    least = tolerances["spread"]["min_pairs"]["value"]
    for share in [*tolerances["early"]["looks"]["value"], 1.0]:
        end = math.ceil(share * prompts - 1e-9)
        if end >= least and end - (ends[-1] if ends else 0) >= concurrency:
            ends.append(end)
    if ends and ends[-1] != prompts:
        ends[-1] = prompts  # what is left would be too small a batch
    return ends or [prompts]


def error_rate(end: int, ends: Sequence[int], tolerances: Json) -> float:
    """What the look after `end` prompts may err, of what all looks may."""
    power = tolerances["early"]["spending_power"]["value"]
    before = max((other for other in ends if other < end), default=0)
    share: float = (end / ends[-1]) ** power - (before / ends[-1]) ** power
    return share * float(tolerances["error_rate"]["value"])


def path(rows: Rows, ends: Sequence[int], golden: Golden, tolerances: Json) -> list[Look]:
    """Every look at rows in the order of sending, up to the first that decides."""
    taken = []
    for end in ends:
        if end > len(rows):
            break
        taken.append(look(rows[:end], ends, golden, tolerances))
        if taken[-1].outcome:
            break
    return taken


def look(rows: Rows, ends: Sequence[int], golden: Golden, tolerances: Json) -> Look:
    """Decide after the batch that `rows`, in the order of sending, ends with."""
    sent, rate = len(rows), error_rate(len(rows), ends, tolerances)
    shift = shift_of(rows, ends[-1], golden, tolerances)
    if shift is None:
        return Look(sent, rate, None, None, "too little to compare")
    found = cell_test.decide(shift, tolerances, rate)
    text = cell_test.describe(shift, tolerances, rate)
    return Look(sent, rate, shift, None if found is Outcome.INCONCLUSIVE else found, text)


def shift_of(rows: Rows, prompts: int, golden: Golden, tolerances: Json) -> Shift | None:
    """Paired with the golden's rows, else against its AL over prompts of which some are missing.

    Differences between runs are no sample of the prompts: nothing is corrected for those that are
    still to come. Unpaired, most of the error is that they are missing, and vanishes as they come
    (finite population correction).
    """
    spread = tolerances["spread"]
    sent = order(prompts, tolerances)[: len(rows)]
    runs = [[run[i] for i in sent] for run in golden.rows if len(run) == prompts]
    if runs:
        return interval.paired(rows, runs, golden.n, spread["min_pairs"]["value"])
    drafting = [row for row in rows if row[1]]
    error = clustered_standard_error(drafting)
    too_small = prompts < spread["assumed_from_prompts"]["value"]
    if error is None or too_small or len(drafting) < spread["min_pairs"]["value"]:
        return None
    al = 1 + sum(a for a, _ in drafting) / sum(s for _, s in drafting)
    missing = error / al * math.sqrt(1 - len(rows) / prompts)
    return interval.assumed(
        al,
        golden.acceptance_length,
        len(golden.run_lengths),
        spread["assumed"]["value"],
        missing,
        len(drafting) - 1,
    )
