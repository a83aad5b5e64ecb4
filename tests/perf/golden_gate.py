"""How often the golden gate errs, in simulated runs whose true shift is known.

Every judgement is by the gate's own code; the peer is a gate that only asks whether the AL lies
within ±5 %, on the same draws.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from tests.perf.measure import Line
from tests.perf.simulated_runs import BETWEEN_RUNS, PROMPTS, Counts, N, draws
from utils import records
from utils.acceptance import estimate
from utils.golden import cell_test, curve, early, interval, registry
from utils.golden.interval import Rows, Shift
from utils.golden.registry import Golden
from utils.records import Json
from utils.verdicts import Outcome

TOLERANCES = records.read_yaml(registry.FOLDER / registry.TOLERANCES, "tolerances")
REPEATS, REPEATS_OF_CURVES = 10_000, 4_000
RATE, CHANCE = 1.0, 0.3  # percent; the latter where a rule errs exactly as often as it may


@dataclass
class Tally:
    """What many runs with one true shift came to; tokens: share of all that an early stop took."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    points: Counter[bool] = field(default_factory=Counter)
    stops: Counter[Outcome] = field(default_factory=Counter)
    tokens: list[float] = field(default_factory=list)
    covered: int = 0
    runs: int = 0

    def share(self, outcome: Outcome) -> float:
        return 100 * self.outcomes[outcome] / self.runs

    def stopped(self, outcome: Outcome) -> float:
        return 100 * self.stops[outcome] / self.runs

    def point(self, inside: bool) -> float:
        return 100 * self.points[inside] / self.runs


def run() -> list[Line]:
    draw = np.random.default_rng(20261201)
    studies = (_new_prompts, _paired, _wilder, _imported, _curves, _unpaired_early)
    return [line for study in studies for line in study(draw)]


def _new_prompts(draw: np.random.Generator) -> list[Line]:
    """The interval in a record: of other prompts, so with the spread between prompts."""
    true = _mean_al()
    hits = 0
    for accepted, steps in zip(*draws(draw, REPEATS, 0.0, runs=1), strict=True):
        rows = _rows(accepted[0], steps[0])
        al, error = _al(rows), estimate.clustered_standard_error(rows)
        assert error is not None
        hits += abs(al - true) <= estimate.student_t(0.975, PROMPTS - 1) * error
    return [_coverage("coverage, other prompts", 100 * hits / REPEATS)]


def _paired(draw: np.random.Generator) -> list[Line]:
    """With the golden's rows of the same prompts."""
    tallies = {p: _tally(draw, p) for p in (0.0, -2.5, -5.0, -8.0, 8.0, -10.0, 10.0)}
    none, low, high = tallies[0.0], tallies[-8.0], tallies[8.0]
    lines = [
        _coverage(f"coverage, paired, {p:+g}%", 100 * tallies[p].covered / tallies[p].runs)
        for p in (0.0, -8.0)
    ]
    lines += [
        Line("no shift: wrong fail", none.share(Outcome.FAIL), none.point(False), "%", RATE),
        Line("no shift: inconclusive", none.share(Outcome.INCONCLUSIVE), None, "%"),
        Line("-8%: wrong pass", low.share(Outcome.PASS), low.point(True), "%", RATE),
        Line("-8%: inconclusive", low.share(Outcome.INCONCLUSIVE), None, "%"),
        Line("+8%: wrong pass", high.share(Outcome.PASS), high.point(True), "%"),
        Line("-2.5%: fail", tallies[-2.5].share(Outcome.FAIL), tallies[-2.5].point(False), "%"),
        Line("-5%: fail", tallies[-5.0].share(Outcome.FAIL), tallies[-5.0].point(False), "%"),
        Line("early, no shift: wrong fail", none.stopped(Outcome.FAIL), None, "%", RATE),
        Line("early, -8%: wrong pass", low.stopped(Outcome.PASS), None, "%", RATE),
        Line("early, no shift: inconclusive", none.stopped(Outcome.INCONCLUSIVE), None, "%"),
        Line("early, -8%: inconclusive", low.stopped(Outcome.INCONCLUSIVE), None, "%"),
    ]
    for percent, limit in ((0.0, 35.0), (-10.0, 25.0), (10.0, 25.0), (-5.0, None)):
        used = 100 * median(tallies[percent].tokens)
        lines.append(Line(f"early, {percent:+g}%: median of tokens", used, 100.0, "%", limit))
    return lines


def _wilder(draw: np.random.Generator) -> list[Line]:
    """Where runs of one prompt differ twice as much as assumed."""
    none, low = (_tally(draw, p, between_runs=2 * BETWEEN_RUNS) for p in (0.0, -8.0))
    name = "runs twice as wild"
    return [
        Line(f"{name}: wrong fail", none.share(Outcome.FAIL), none.point(False), "%", RATE),
        Line(f"{name}: inconclusive", none.share(Outcome.INCONCLUSIVE), None, "%"),
        Line(f"{name}, -8%: wrong pass", low.share(Outcome.PASS), low.point(True), "%", RATE),
        Line(f"{name}, early: wrong fail", none.stopped(Outcome.FAIL), None, "%", RATE),
        Line(f"{name}, early: median of tokens", 100 * median(none.tokens), 100.0, "%"),
        Line(f"{name}, early, -8%: wrong pass", low.stopped(Outcome.PASS), None, "%", RATE),
    ]


def _unpaired_early(draw: np.random.Generator) -> list[Line]:
    """Against a published value, which has no rows: most of the prompts are needed."""
    lines = []
    for percent in (0.0, -8.0, -10.0, -25.0):
        tally = _tally(draw, percent, published=True)
        name = f"imported, early, {percent:+g}%"
        if percent == 0.0:
            lines.append(Line(f"{name}: wrong fail", tally.stopped(Outcome.FAIL), None, "%", RATE))
        if percent == -8.0:
            lines.append(Line(f"{name}: wrong pass", tally.stopped(Outcome.PASS), None, "%", RATE))
        used = 100 * median(tally.tokens)
        lines.append(Line(f"{name}: median of tokens", used, 100.0, "%"))
    return lines


def _tally(
    draw: np.random.Generator,
    percent: float,
    between_runs: float = BETWEEN_RUNS,
    published: bool = False,
) -> Tally:
    repeats = REPEATS if not published else REPEATS_OF_CURVES
    log, tally = math.log1p(percent / 100), Tally(runs=repeats)
    ends, order = early.looks(PROMPTS, 1, TOLERANCES), early.order(PROMPTS, TOLERANCES)
    least = TOLERANCES["spread"]["min_pairs"]["value"]
    for accepted, steps in zip(*draws(draw, repeats, log, 2, between_runs), strict=True):
        mine, other = _rows(accepted[0], steps[0]), _rows(accepted[1], steps[1])
        shift = interval.paired(mine, [other], N, least)
        assert shift
        tally.covered += abs(shift.estimate - log) <= shift.reach(0.975)
        tally.outcomes[cell_test.decide(shift, TOLERANCES)] += 1
        tally.points[cell_test.within(shift, TOLERANCES)] += 1
        sent = [mine[place] for place in order]
        last = early.path(sent, ends, _golden(other, published), TOLERANCES)[-1]
        tally.stops[last.outcome or Outcome.INCONCLUSIVE] += 1
        tally.tokens.append(_tokens(sent[: last.prompts]) / _tokens(sent))
    return tally


def _imported(draw: np.random.Generator) -> list[Line]:
    """One run against a published value: both have a spread that nobody measured."""
    strict = {**TOLERANCES, "must_not_pass": TOLERANCES["relative_floor"]}
    lines = []
    for spread in (0.01, 0.015, 0.02):
        none, low = (_published(draw, percent, spread, 1) for percent in (0.0, -8.0))
        name = f"imported, sd {100 * spread:g}%"
        limit = RATE + CHANCE if spread <= TOLERANCES["spread"]["assumed"]["value"] else None
        wrong_fail, wrong_pass = none.share(Outcome.FAIL), low.share(Outcome.PASS)
        lines += [
            Line(f"{name}: wrong fail", wrong_fail, none.point(False), "%", limit),
            Line(f"{name}: inconclusive", none.share(Outcome.INCONCLUSIVE), None, "%"),
            Line(f"{name}, -8%: wrong pass", wrong_pass, low.point(True), "%", limit),
        ]
    doubt = _published(draw, 0.0, 0.015, 1, strict).share(Outcome.INCONCLUSIVE)
    return [*lines, Line("imported, no pass beyond ±5%: inconclusive", doubt, None, "%")]


def _curves(draw: np.random.Generator) -> list[Line]:
    lines = []
    for cells in (2, 4, 8):
        none, low = (_published(draw, percent, 0.015, cells) for percent in (0.0, -8.0))
        name = f"imported, {cells} cells"
        wrong_fail, wrong_pass = none.share(Outcome.FAIL), low.share(Outcome.PASS)
        lines += [
            Line(f"{name}: any wrong fail", wrong_fail, none.point(False), "%", RATE + 2 * CHANCE),
            Line(f"{name}: inconclusive", none.share(Outcome.INCONCLUSIVE), None, "%"),
            Line(f"{name}, -8%: all wrongly pass", wrong_pass, low.point(True), "%", RATE),
        ]
    return [*lines, *_one_cell_off(draw, -8.0, 8), *_one_cell_off(draw, -12.0, 8)]


def _one_cell_off(draw: np.random.Generator, percent: float, cells: int) -> list[Line]:
    """What only one draft length has, the curve can't tell from chance."""
    passed, inside = 0, 0
    for row in np.exp(draw.normal(0, 0.015, (REPEATS_OF_CURVES, cells, 2))).tolist():
        off = [percent] + [0.0] * (cells - 1)
        shifts = [_against_published(2.5, p, *pair) for p, pair in zip(off, row, strict=True)]
        passed += curve.decide(shifts, TOLERANCES)[0] is Outcome.PASS
        inside += cell_test.within(shifts[0], TOLERANCES)
    ours, peer = (100 * count / REPEATS_OF_CURVES for count in (passed, inside))
    return [Line(f"imported, {cells} cells, one at {percent:+g}%: passes", ours, peer, "%")]


def _published(
    draw: np.random.Generator, percent: float, spread: float, cells: int, rules: Json = TOLERANCES
) -> Tally:
    """A directory of one curve's cells: fail if any does, pass if all do."""
    runs = REPEATS if cells == 1 else REPEATS_OF_CURVES
    tally = Tally(runs=runs)
    noise = np.exp(draw.normal(0, spread, (runs, cells, 2)))
    for row in noise.tolist():
        shifts = [_against_published(2.5, percent, ours, theirs) for ours, theirs in row]
        found = curve.decide(shifts, rules) if cells > 1 else [cell_test.decide(shifts[0], rules)]
        worst = Outcome.FAIL if Outcome.FAIL in found else Outcome.INCONCLUSIVE
        tally.outcomes[Outcome.PASS if set(found) == {Outcome.PASS} else worst] += 1
        tally.points[all(cell_test.within(shift, rules) for shift in shifts)] += 1
    return tally


def _against_published(al: float, percent: float, ours: float, theirs: float) -> Shift:
    spread = TOLERANCES["spread"]["assumed"]["value"]
    return interval.assumed(al * (1 + percent / 100) * ours, round(al * theirs, 2), 0, spread)


def _coverage(name: str, percent: float) -> Line:
    return Line(f"{name}: {percent:.1f}%, off by", abs(percent - 95), None, "points", 2.0)


def _mean_al() -> float:
    """The pooled AL of very many prompts."""
    accepted, steps = draws(np.random.default_rng(7), 20_000, 0.0, runs=1)
    return float(1 + accepted.sum() / steps.sum())


def _golden(rows: Rows, published: bool) -> Golden:
    key = {"num_speculative_tokens": N, "prompts": PROMPTS}
    if published:
        return Golden("", key, "", True, "", round(_al(rows), 2), ())
    return Golden("", key, "", False, "", _al(rows), (_al(rows),), None, (tuple(rows),))


def _rows(accepted: Counts, steps: Counts) -> list[tuple[int, int]]:
    return list(zip(accepted.tolist(), steps.tolist(), strict=True))


def _al(rows: Rows) -> float:
    return 1 + sum(a for a, _ in rows) / sum(s for _, s in rows)


def _tokens(rows: Sequence[tuple[int, int]]) -> int:
    return sum(a + s for a, s in rows)
