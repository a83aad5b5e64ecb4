"""How far a measured AL lies from its golden, as a log ratio with an interval around it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

from utils.acceptance.estimate import student_t, student_t_tail

Rows = Sequence[tuple[int, int]]

# Of a step's tokens over their mean, squared; where nearly all or nothing is accepted.
LEAST_STEP_VARIANCE = 0.01
# A published AL has two decimals.
ROUNDING = 0.01 / math.sqrt(12)


@dataclass(frozen=True)
class Shift:
    """A measurement against its golden.

    measured, reference: pooled ALs over the same prompts. estimate: log of their true ratio.
    standard_error: of the estimate. degrees: of freedom of Student's t, None where the standard
    error is taken as known. rule: where the standard error is from, for people.
    """

    measured: float
    reference: float
    estimate: float
    standard_error: float
    degrees: int | None
    rule: str

    def reach(self, probability: float) -> float:
        """Half width of the interval whose ends are each exceeded with 1 - probability."""
        if self.degrees is None:
            return NormalDist().inv_cdf(probability) * self.standard_error
        return student_t(probability, self.degrees) * self.standard_error

    def chance(self) -> float:
        """Probability of an estimate at least this far from no shift, if there is none (p)."""
        if self.standard_error == 0:
            return 1.0 if self.estimate == 0 else 0.0
        distance = abs(self.estimate) / self.standard_error
        if self.degrees is None:
            return 2 * NormalDist().cdf(-distance)
        return student_t_tail(distance, self.degrees)


def paired(
    rows: Rows, golden_runs: Sequence[Rows], draft_length: int, least_pairs: int
) -> Shift | None:
    """From every prompt's log AL, less its mean in the golden's runs.

    rows, golden_runs: (accepted, steps) of the same prompts in the same order. None with fewer
    than least_pairs prompts that took a step in every run. What a prompt does to all runs
    cancels; all runs enter alike, so that of equal ones none is favoured by being the new one. A
    prompt's weight is the inverse of its variance: that of its steps, and one between runs that
    the spread of all prompts gives (DerSimonian and Laird 1986). The standard error is of the
    spread alone, with the prompt as cluster (HC3: MacKinnon and White 1985).
    """
    everything = list(zip(rows, *golden_runs, strict=True))
    pairs = [runs for runs in everything if all(steps for _, steps in runs)]
    if len(pairs) < least_pairs:
        return None
    of_a_step = step_variance(_pooled(run for runs in pairs for run in runs) - 1, draft_length)
    shifts = [_own_shift(runs) for runs in pairs]
    noise = [_noise(runs, of_a_step) for runs in pairs]
    between = _variance_between(shifts, noise)
    weights = [1 / (own + between) for own in noise]
    mean = _mean(shifts, weights)
    return Shift(
        measured=_pooled(runs[0] for runs in everything),
        reference=_pooled(run for runs in everything for run in runs[1:]),
        estimate=mean,
        standard_error=_standard_error(shifts, weights, mean),
        degrees=len(pairs) - 1,
        rule=f"paired over {len(pairs)} prompts",
    )


def between_runs(al: float, reference: float, run_lengths: Sequence[float]) -> Shift:
    """One new run against the mean of the golden's n: s · √(1 + 1/n), s between those."""
    n = len(run_lengths)
    spread = stdev(map(math.log, run_lengths)) * math.sqrt(1 + 1 / n)
    rule = f"spread of its {n} runs"
    return Shift(al, reference, math.log(al / reference), spread, n - 1, rule)


def assumed(
    al: float,
    reference: float,
    runs: int,
    spread: float,
    sampling_error: float = 0.0,
    degrees: int | None = None,
) -> Shift:
    """With a spread between runs that nobody measured; runs: of the golden, 0 if published.

    sampling_error, degrees: standard error of log(al) for the prompts that are still to come, and
    its degrees of freedom.
    """
    rounding = 0.0 if runs else ROUNDING / reference
    own = spread * math.sqrt(1 + 1 / max(runs, 1))
    return Shift(
        al,
        reference,
        math.log(al / reference),
        math.hypot(own, rounding, sampling_error),
        degrees,
        f"spread assumed ({spread:.1%} a run)",
    )


def step_variance(accepted: float, draft_length: int) -> float:
    """Variance of a step's tokens over their squared mean, from the mean accepted of N drafts.

    m (N - m) (N + 2) / 3N: exact for N = 1, and for lengths that are all as likely. For weights
    only: the standard error of a shift doesn't rest on it.
    """
    n = draft_length
    variance = accepted * (n - accepted) * (n + 2) / (3 * n)
    return max(variance / (1 + accepted) ** 2, LEAST_STEP_VARIANCE)


def _noise(runs: Rows, of_a_step: float) -> float:
    """What the steps of one prompt give its shift: of one run against the mean of the others."""
    mean = fmean(of_a_step / steps for _, steps in runs)
    return mean * (1 + 1 / (len(runs) - 1))


def _own_shift(runs: Rows) -> float:
    """One prompt's log AL in the first run, less its mean in the others."""
    mine, *others = (math.log1p(accepted / steps) for accepted, steps in runs)
    return mine - fmean(others)


def _pooled(rows: Iterable[tuple[int, int]]) -> float:
    accepted, steps = map(sum, zip(*rows, strict=True))
    return 1 + accepted / steps


def _standard_error(values: Sequence[float], weights: Sequence[float], mean: float) -> float:
    """Of a weighted mean; a value that pulls the mean towards itself shows too small a residual."""
    total = sum(weights)
    squares = (
        (weight * (value - mean) / (1 - weight / total)) ** 2
        for value, weight in zip(values, weights, strict=True)
    )
    return math.sqrt(sum(squares)) / total


def _variance_between(values: Sequence[float], noise: Sequence[float]) -> float:
    weights = [1 / own for own in noise]
    total = sum(weights)
    mean = _mean(values, weights)
    squares = sum(w * (x - mean) ** 2 for x, w in zip(values, weights, strict=True))
    scale = total - sum(weight**2 for weight in weights) / total
    return max(0.0, (squares - (len(values) - 1)) / scale)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
