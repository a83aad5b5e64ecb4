"""Acceptance length and its uncertainty, from counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from statistics import fmean
from typing import Any

from utils.errors import NotMeasured

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """Figures of one window.

    acceptance_length: pooled, 1 + accepted / steps. mean_request_acceptance_length: unweighted
    mean of the per-request ALs. standard_error, lower, upper: of the pooled AL, clustered by
    request, 95 %; None without at least two requests with figures of their own. per_position:
    share of steps whose draft token at that position was accepted, empty where the engine doesn't
    say. conditional: the same, given that the position before it was. draft_acceptance_rate:
    accepted / drafted tokens.
    """

    acceptance_length: float
    mean_request_acceptance_length: float | None
    standard_error: float | None
    lower: float | None
    upper: float | None
    requests_with_steps: int
    per_position: tuple[float, ...]
    conditional: tuple[float | None, ...]
    draft_acceptance_rate: float | None

    def as_json(self) -> dict[str, Any]:
        data = asdict(self)
        return {**data, "per_position": [*self.per_position], "conditional": [*self.conditional]}


def acceptance_length(accepted: int, steps: int) -> float:
    """AL = 1 + accepted / steps: the bonus token counts, steps without a draft do not.

    Raises:
        NotMeasured: no step was counted.
    """
    if steps <= 0:
        raise NotMeasured("no verify step was counted: the drafter proposed nothing")
    return 1.0 + accepted / steps


def clustered_standard_error(rows: Sequence[tuple[int, int]]) -> float | None:
    """Standard error of the pooled AL; rows are (accepted, steps), one a request.

    Ratio estimator with the request as cluster (delta method), e_i = A_i - R S_i:
    Var = n / (n - 1) · Σ e_i² / (Σ S_i)². Steps of one request share their text, so an error
    computed over steps would be several times too small (Cochran, Sampling Techniques, 6.3).
    """
    total = sum(steps for _, steps in rows)
    if len(rows) < 2 or total == 0:
        return None
    ratio = sum(accepted for accepted, _ in rows) / total
    squares = sum((accepted - ratio * steps) ** 2 for accepted, steps in rows)
    n = len(rows)
    return math.sqrt(n / (n - 1) * squares) / total


def student_t_tail(t: float, degrees: int) -> float:
    """P(|T| > t) of Student's t, exact for whole degrees (Abramowitz & Stegun 26.7.3, 26.7.4)."""
    angle = math.atan(abs(t) / math.sqrt(degrees))
    cosine = math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    inside = math.sin(angle) * total
    return 1 - (2 / math.pi * (angle + inside) if odd else inside)


@cache
def student_t(probability: float, degrees: int) -> float:
    """Quantile of Student's t, for probabilities from 0.5 up to 1 - 1e-9."""
    low, high = 0.0, 1.0
    while student_t_tail(high, degrees) > 2 * (1 - probability):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if student_t_tail(middle, degrees) > 2 * (1 - probability):
            low = middle
        else:
            high = middle
    return high


def estimate(
    *,
    accepted: int,
    steps: int,
    drafted: int | None,
    per_position: Sequence[int] | None,
    rows: Sequence[tuple[int, int]],
) -> Estimate:
    """All figures; rows are (accepted, steps) per request, empty when unknown; so are positions.

    Raises:
        NotMeasured: no step was counted.
    """
    al = acceptance_length(accepted, steps)
    drafting = [(a, s) for a, s in rows if s > 0]
    error = clustered_standard_error(drafting)
    margin = None
    if error is not None:
        margin = student_t(0.5 + CONFIDENCE / 2, len(drafting) - 1) * error
    positions = per_position or ()
    reached = [steps, *positions]
    return Estimate(
        acceptance_length=al,
        mean_request_acceptance_length=(
            fmean(1.0 + a / s for a, s in drafting) if drafting else None
        ),
        standard_error=error,
        lower=None if margin is None else al - margin,
        upper=None if margin is None else al + margin,
        requests_with_steps=len(drafting),
        per_position=tuple(count / steps for count in positions),
        conditional=tuple(
            count / given if given else None
            for given, count in zip(reached, positions, strict=False)
        ),
        draft_acceptance_rate=accepted / drafted if drafted else None,
    )
