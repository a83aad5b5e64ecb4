"""When an eval is due: on a grid that every run of one configuration shares."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from utils.decode_eval.config import DecodeEvalConfig


@dataclass
class Cadence:
    """Boundaries are the multiples of every_steps, also_at, and 0 where at_start is on.

    A boundary fires once, at the first look at or after it; one that passed before the first look
    of this process belongs to the training that was resumed, and doesn't fire.
    """

    every_steps: int
    more: tuple[int, ...]
    taken: set[int] = field(default_factory=set)
    first_look: int | None = None

    @classmethod
    def of(cls, config: DecodeEvalConfig, measured: Iterable[int]) -> Cadence:
        """With the boundaries of the steps that were measured already taken."""
        start = (0,) if config.at_start else ()
        cadence = cls(config.every_steps, tuple(sorted({*start, *config.also_at})))
        for step in measured:
            cadence.take(step)
        return cadence

    def boundary(self, step: int) -> int | None:
        """The last boundary at or before a step."""
        listed = self.more[: bisect.bisect_right(self.more, step)]
        grid = step // self.every_steps * self.every_steps
        return max([*listed[-1:], *([grid] if grid else [])], default=None)

    def due(self, step: int) -> bool:
        if self.first_look is None:
            self.first_look = step
        boundary = self.boundary(step)
        return boundary is not None and boundary >= self.first_look and boundary not in self.taken

    def take(self, step: int) -> None:
        """Its boundary is dealt with: measured, failed or skipped, it doesn't fire again."""
        if (boundary := self.boundary(step)) is not None:
            self.taken.add(boundary)
