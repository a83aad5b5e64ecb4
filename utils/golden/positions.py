"""Acceptance by draft position: where a measurement loses what its golden had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from utils.golden.registry import Golden


@dataclass(frozen=True)
class Profile:
    """Share of steps whose draft was accepted at position 1, 2, …

    inferred: from the differences of an imported curve, AL(N) - AL(N-1), as a drafter that
    proposes one token after the other would have it; noisy where the curve is.
    """

    shares: tuple[float, ...]
    inferred: bool = False

    @property
    def conditional(self) -> tuple[float, ...]:
        """Share accepted given that the position before was."""
        reached = (1.0, *self.shares)
        return tuple(b / a if a > 0 else 0.0 for a, b in pairwise(reached))

    def __str__(self) -> str:
        text = " ".join(f"{share:.3f}" for share in self.conditional)
        return f"{text}{' (inferred from its curve)' if self.inferred else ''}"


@dataclass(frozen=True)
class Loss:
    """How a measured profile falls short of a golden one.

    from_first: share of the lost AL that position 1 explains, that is which comes back if it alone
    is put right and what follows keeps its ratio to it.
    """

    measured: Profile
    golden: Profile
    from_first: float

    def first(self) -> str:
        has, had = self.measured.shares[0], self.golden.shares[0]
        return f"position 1 is accepted in {has:.1%} of the steps, the golden's in {had:.1%}"

    def given(self) -> str:
        return f"accepted given the one before: {self.measured}, golden {self.golden}"


def of_golden(golden: Golden, curve: Sequence[Golden]) -> Profile | None:
    """A golden's own profile, else that which its curve implies; None where neither is known."""
    if golden.profile:
        return Profile(golden.profile)
    lengths = {other.n: other.acceptance_length for other in (*curve, golden)}
    shorter = range(1, golden.n + 1)
    if not golden.imported or any(n not in lengths for n in shorter):
        return None
    steps = (1.0, *(lengths[n] for n in shorter))
    rises = [max(b - a, 0.0) for a, b in pairwise(steps)]
    return Profile(tuple(accumulate(rises, min)), inferred=True)


def loss(measured: Profile, golden: Profile) -> Loss | None:
    """Where the loss is; None where nothing was lost or the two don't fit together."""
    lost = sum(golden.shares) - sum(measured.shares)
    if len(measured.shares) != len(golden.shares) or not lost > 0 or not measured.shares[0] > 0:
        return None
    ratio = golden.shares[0] / measured.shares[0]
    back = sum(share * ratio - share for share in measured.shares)
    return Loss(measured, golden, back / lost)
