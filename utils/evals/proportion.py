"""Shares of documents: 95 % intervals of one and of a difference, and whether two are equal."""

from __future__ import annotations

import math
from statistics import NormalDist

from utils.acceptance.estimate import CONFIDENCE

Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


def wilson(share: float, samples: int) -> tuple[float, float]:
    """Wilson's score interval of a share of `samples` documents (JASA 22, 1927)."""
    middle = share + Z**2 / (2 * samples)
    half = Z * math.sqrt(share * (1 - share) / samples + Z**2 / (4 * samples**2))
    scale = 1 + Z**2 / samples
    return (middle - half) / scale, (middle + half) / scale


def difference(a: float, samples_a: int, b: float, samples_b: int) -> tuple[float, float]:
    """Of b - a, from both Wilson intervals (Newcombe 1998, method 10)."""
    (low_a, high_a), (low_b, high_b) = wilson(a, samples_a), wilson(b, samples_b)
    change = b - a
    return change - math.hypot(b - low_b, high_a - a), change + math.hypot(high_b - b, a - low_a)


def p_value(a: float, samples_a: int, b: float, samples_b: int) -> float:
    """Two-sided, of a = b, by the pooled z-test (Fleiss, Levin and Paik 2003, section 3.2)."""
    pooled = (a * samples_a + b * samples_b) / (samples_a + samples_b)
    spread = math.sqrt(pooled * (1 - pooled) * (1 / samples_a + 1 / samples_b))
    if spread == 0.0:  # all right or all wrong, on both sides
        return 1.0
    return math.erfc(abs(a - b) / spread / math.sqrt(2))
