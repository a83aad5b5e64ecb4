"""Simulated runs of one prompt set, by prompt: accepted drafts and verify steps.

A run is 80 prompts with lognormal answer lengths (coefficient of variation 1.38) that accept each
of 3 drafts with a probability of their own: its logit differs between prompts (0.45) and between
two runs of one prompt (0.12). That gives 28,000 steps a run, as published ones have, and pooled
ALs that spread by 0.9 % between runs.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

PROMPTS, N, ACCEPT, OUTPUT_LEN = 80, 3, 0.70, 4096
MEAN_TOKENS, CV, CV_OF_A_PROMPT = 924, 1.38, 0.3
BETWEEN_PROMPTS, BETWEEN_RUNS = 0.45, 0.12

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def draws(
    draw: np.random.Generator,
    repeats: int,
    log: float,
    runs: int,
    between_runs: float = BETWEEN_RUNS,
) -> tuple[Counts, Counts]:
    """Accepted and steps, each (repeats, runs, prompts); the first run's ALs are shifted by log."""
    shape = (repeats, runs, PROMPTS)
    total, own = math.log1p(CV**2), CV_OF_A_PROMPT
    long = draw.normal(-total / 2, math.sqrt(total - own**2), (repeats, 1, PROMPTS))
    tokens = np.clip(MEAN_TOKENS * np.exp(long + draw.normal(0, own, shape)), 2, OUTPUT_LEN)
    logit = math.log(ACCEPT / (1 - ACCEPT)) + draw.normal(0, BETWEEN_PROMPTS, (repeats, 1, PROMPTS))
    accept = 1 / (1 + np.exp(-logit - draw.normal(0, between_runs, shape)))
    if log:
        accept[:, 0] = _accepting(_length(accept[:, 0]) * math.exp(log))
    steps = np.maximum(tokens / _length(accept), 1).astype(np.int64)
    accepted, left = np.zeros_like(steps), steps
    for _ in range(N):
        left = draw.binomial(left, accept)
        accepted += left
    return accepted, steps


def _length(accept: Floats) -> Floats:
    """AL where each of N drafts is accepted with that probability, up to the first that isn't."""
    return np.asarray(sum(accept**k for k in range(N + 1)))


def _accepting(length: Floats) -> Floats:
    """The probability that gives an AL, by bisection."""
    low, high = np.zeros_like(length), np.ones_like(length)
    for _ in range(30):
        middle = (low + high) / 2
        below = _length(middle) < length
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)
