"""What histories say: a table, two runs side by side, and a gate with an exit status."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utils import errors
from utils.acceptance.estimate import CONFIDENCE, student_t
from utils.decode_eval import history, lease
from utils.errors import NotMeasured, UsageError
from utils.records import Json
from utils.verdicts import Outcome, Verdict, exit_status

LAST, BEST = "last", "best"
REMEDY = "the interval holds the limit: measure with more prompts"


@dataclass(frozen=True)
class Difference:
    """AL of one point less a share of another's. margin: half of its 95 % interval."""

    value: float
    margin: float

    @property
    def lower(self) -> float:
        return self.value - self.margin

    @property
    def upper(self) -> float:
        return self.value + self.margin


def difference(one: Json, other: Json, share: float = 1.0) -> Difference:
    """AL(one) - share · AL(other) of two sets with the same requests, paired by prompt.

    Each prompt is a cluster with e_i = (A_i - R S_i) / ΣS of `one` less share times that of
    `other`; Var = n / (n - 1) · Σ e_i² (as utils/acceptance/estimate.py does for one ratio). Two
    points share their prompts, and what is hard for one is hard for the other, so this is narrower
    than what two separate intervals give.

    Raises:
        NotMeasured: they asked different things, or have no figures by request.
    """
    if one["requests_sha256"] != other["requests_sha256"]:
        raise NotMeasured(
            f"prompt set {one['name']}: the requests differ (prompts, sampling, template kwargs or "
            "length), so their ALs can't be compared",
            "other_requests",
        )
    n = len(one["rows"])
    if n < 2 or len(other["rows"]) != n:
        raise NotMeasured("no figures of at least two requests to pair", "no_interval")
    pairs = zip(_residuals(one), _residuals(other), strict=True)
    squares = sum((a - share * b) ** 2 for a, b in pairs)
    error = math.sqrt(n / (n - 1) * squares)
    value = one["acceptance_length"] - share * other["acceptance_length"]
    return Difference(value, student_t(0.5 + CONFIDENCE / 2, n - 1) * error)


def _residuals(one: Json) -> list[float]:
    steps = sum(s for _, s in one["rows"])
    ratio = sum(a for a, _ in one["rows"]) / steps
    return [(a - ratio * s) / steps for a, s in one["rows"]]


def judge(cell: str, measured: float, found: Difference, limit: float, source: str) -> Verdict:
    """pass where the whole interval is on the right side of the limit, fail where none of it is."""
    outcome, reason, detail = Outcome.INCONCLUSIVE, "interval_holds_limit", REMEDY
    if found.lower >= 0.0:
        outcome, reason, detail = Outcome.PASS, "", ""
    elif found.upper < 0.0:
        outcome, reason, detail = Outcome.FAIL, "below_limit", f"{found.value:+.4f} to the limit"
    return Verdict(
        outcome, cell, "tau_real", measured, limit, source=source, reason=reason, detail=detail
    )


def check(argv: Sequence[str]) -> int:
    """Gate one point: 0 above its limits, 1 below, 3 not measured or not decided."""
    parser = argparse.ArgumentParser(
        prog="python3 -m utils.decode_eval check", description=check.__doc__
    )
    parser.add_argument("history", type=Path, help="output_dir or history.jsonl")
    parser.add_argument("--step", default=LAST, help="a step, last or best")
    parser.add_argument("--set", dest="name", help="prompt set (default: the first)")
    parser.add_argument("--floor", type=float, help="absolute limit of the AL")
    parser.add_argument("--reference", type=Path, help="another run's output_dir or history")
    parser.add_argument("--reference-step", default=BEST, help="a step, last or best")
    parser.add_argument("--max-drop", type=float, default=0.05, help="share of the reference's AL")
    args = parser.parse_args(argv)
    if args.floor is None and args.reference is None:
        raise UsageError("name a limit: --floor or --reference")
    if not 0.0 <= args.max_drop < 1.0:
        raise UsageError(f"--max-drop is {args.max_drop}, want 0 to 1")
    verdicts = _verdicts(args)
    for verdict in verdicts:
        print(verdict.line())
    return exit_status(verdicts)


def _verdicts(args: argparse.Namespace) -> list[Verdict]:
    cell = f"step {args.step}"
    verdicts = []
    try:
        row = pick(history.read(args.history), args.step)
        one = prompt_set(row, args.name)
        cell = f"step {row['step']} {one['name']} N={row['num_speculative_tokens']}"
        if args.floor is not None:
            verdicts.append(_above(cell, one, args.floor))
        if args.reference is not None:
            verdicts.append(_no_drop(cell, row, one, args))
    except NotMeasured as error:
        verdicts.append(
            Verdict(Outcome.NOT_MEASURED, cell, "tau_real", reason=error.reason, detail=str(error))
        )
    return verdicts


def _above(cell: str, one: Json, floor: float) -> Verdict:
    al = one["acceptance_length"]
    if one["lower"] is None:
        raise NotMeasured("the point has no interval: measure at least two prompts", "no_interval")
    return judge(cell, al, Difference(al - floor, al - one["lower"]), floor, "--floor")


def _no_drop(cell: str, row: Json, one: Json, args: argparse.Namespace) -> Verdict:
    base = pick(history.read(args.reference), args.reference_step)
    if base["num_speculative_tokens"] != row["num_speculative_tokens"]:
        raise NotMeasured(
            f"the reference has N={base['num_speculative_tokens']}, this run "
            f"N={row['num_speculative_tokens']}",
            "other_n",
        )
    other, share = prompt_set(base, one["name"]), 1.0 - args.max_drop
    limit = share * other["acceptance_length"]
    source = f"{share:.0%} of step {base['step']} of {args.reference}, paired by prompt"
    found = difference(one, other, share)
    return judge(cell, one["acceptance_length"], found, limit, source)


def pick(rows: Sequence[Json], wanted: str) -> Json:
    """The measurement of a step, the best one, or the last eval if that is a measurement.

    Raises:
        NotMeasured: there is none; UsageError: wanted is neither.
    """
    evals = [row for row in rows if row["outcome"] != "skipped"]
    if wanted == BEST:
        row = history.best(rows)
    elif wanted == LAST:
        row = evals[-1] if evals else None
    elif wanted.isdigit():
        row = next((r for r in reversed(evals) if r["step"] == int(wanted)), None)
    else:
        raise UsageError(f"a step is a number, last or best, not {wanted!r}")
    if row is None:
        raise NotMeasured(f"the history has no eval of step {wanted}", "no_eval")
    if row["outcome"] != history.MEASURED:
        raise NotMeasured(
            f"step {row['step']}: {row['error']}", row["reason"] or "measurement_failed"
        )
    return row


def prompt_set(row: Json, name: str | None) -> Json:
    """A prompt set of a measurement, the first by default.

    Raises:
        UsageError: it has none of that name.
    """
    for one in row["sets"]:
        if name in (None, one["name"]):
            return dict(one)
    names = ", ".join(one["name"] for one in row["sets"])
    raise UsageError(f"step {row['step']} has no prompt set {name!r}; it has {names}")


def compare(argv: Sequence[str]) -> int:
    """Two runs, step by step, with the interval of the difference; 3 when no step can be."""
    parser = argparse.ArgumentParser(
        prog="python3 -m utils.decode_eval compare", description=compare.__doc__
    )
    parser.add_argument("one", type=Path, help="output_dir or history.jsonl")
    parser.add_argument("other", type=Path)
    parser.add_argument("--set", dest="name", help="prompt set (default: the first)")
    args = parser.parse_args(argv)
    others = {row["step"]: row for row in history.measured(history.read(args.other))}
    print(f"{'step':>8} {'one':>8} {'other':>8} {'one-other':>10}  95 % interval")
    compared = 0
    for row in history.measured(history.read(args.one)):
        if base := others.get(row["step"]):
            compared += _compared(row, base, args.name)
    if not compared:
        raise NotMeasured("the two runs have no step that can be compared", "nothing_in_common")
    return errors.PASS


def _compared(row: Json, base: Json, name: str | None) -> bool:
    one, other = prompt_set(row, name), prompt_set(base, name)
    line = f"{row['step']:>8} {one['acceptance_length']:8.4f} {other['acceptance_length']:8.4f}"
    try:
        if row["num_speculative_tokens"] != base["num_speculative_tokens"]:
            raise NotMeasured("N differs", "other_n")
        found = difference(one, other)
    except NotMeasured as error:
        print(f"{line}  not comparable: {error}")
        return False
    word = "no difference shown"
    if found.lower > 0.0:
        word = "one is higher"
    elif found.upper < 0.0:
        word = "one is lower"
    print(f"{line} {found.value:+10.4f}  {found.lower:+.4f}..{found.upper:+.4f}  {word}")
    return True


def table(argv: Sequence[str]) -> int:
    """Every eval of a run, failures too; 3 when none was measured."""
    parser = argparse.ArgumentParser(
        prog="python3 -m utils.decode_eval history", description=table.__doc__
    )
    parser.add_argument("history", type=Path, help="output_dir or history.jsonl")
    path = parser.parse_args(argv).history
    rows = history.read(path)
    head = f"{'step':>8} {'start':>5} {'tau_real':>8}  95 % interval    {'tau_sim':>7}"
    print(f"{head}  accepted at 1, 2, …")
    for row in rows:
        print(_line(row))
    if path.is_dir() and (held := lease.read(path)):
        print(f"{held.step:>8} {'':>5}  at {held.phase}, for {held.age_s():.0f} s so far")
    return errors.PASS if history.measured(rows) else errors.NOT_MEASURED


def _line(row: Json) -> str:
    head = f"{row['step']:>8} {row['attempt']:>5}"
    if row["outcome"] != history.MEASURED:
        return f"{head} {row['outcome']:>8}  {row['reason']}: {row['error']}"
    interval = "" if row["lower"] is None else f"{row['lower']:.4f}..{row['upper']:.4f}"
    simulated = "" if row["tau_sim"] is None else f"{row['tau_sim']:.3f}"
    places = " ".join(f"{share:.3f}" for share in row["sets"][0]["per_position"])
    return f"{head} {row['acceptance_length']:8.4f}  {interval:<16} {simulated:>7}  {places}"
