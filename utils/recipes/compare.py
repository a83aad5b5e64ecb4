"""A recipe with and without speculation: what differs, what it costs in accuracy, what it gains.

Both result directories are judged anew by the gate; what has no verdict there isn't compared here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import NotMeasured, UsageError
from utils.evals import proportion, validate_scores
from utils.evals.evidence import PLAN
from utils.evals.findings import unmeasured
from utils.recipes import lossless
from utils.records import Json
from utils.serving.greedy import FILE as GREEDY
from utils.verdicts import Outcome, Verdict, exit_status

# What two runs must share, by their plans, beside the cells.
SAME_PLAN = (
    *("model", "model_prefix", "precision", "hw", "engine"),
    *("topology", "synthetic_acceptance"),
)
SAME_SERVER = ("engine_version", "image")
SAME_LOAD = ("dataset", "client", "requested")
OF_SPECULATION = re.compile(r"--spec|-sc\b|--(enable-)?per-request-")
OF_THE_PLACE = re.compile(r"--port\b")
SIGNIFICANCE = 0.01


@dataclass(frozen=True)
class Side:
    """One result directory."""

    directory: Path
    plan: Json
    command: Json
    verdicts: Mapping[str, Verdict]

    def file(self, verdict: Verdict) -> Json:
        """The result that a verdict is on."""
        return dict(records.read_json(self.directory / verdict.evidence[0]))


Result = tuple[float, Json]  # what the gate measured, and the file that it did so in
Compare = Callable[[str, Result, Result], Verdict]


def command(base: Path, speculated: Path) -> int:
    """Print what differs and every verdict."""
    sides = load(base), load(speculated)
    refuse_other_protocol(*sides)
    removed, added = settings_diff(sides[0].command, sides[1].command)
    print("\n".join([*(f"- {line}" for line in removed), *(f"+ {line}" for line in added)]))
    found = list(verdicts(*sides))
    print("\n".join(verdict.line() for verdict in found))
    return exit_status(found)


def load(directory: Path) -> Side:
    """Read one side.

    Raises:
        UsageError: it isn't the result directory of a recipe.
    """
    try:
        plan = records.read_json(directory / PLAN, "plan")
        started = records.read_json(directory / "server_command.json", "server_command")
    except NotMeasured as error:
        raise UsageError(f"{error}; name the result directory of a recipe") from error
    found = {verdict.cell: verdict for verdict in validate_scores.validate(directory)}
    return Side(directory, plan, started, found)


def refuse_other_protocol(base: Side, speculated: Side) -> None:
    """Raises:
    UsageError: the two differ in more than speculation.
    """
    methods = [side.plan["spec_decoding"] for side in (base, speculated)]
    if methods[0] != "none" or methods[1] == "none":
        raise UsageError(
            f"name the one without speculation first; these have {' and '.join(methods)}"
        )
    said: list[tuple[str, Any, Any]]
    said = [(name, base.plan[name], speculated.plan[name]) for name in SAME_PLAN]
    said.append(("cells", _shared_cells(base.plan), _shared_cells(speculated.plan)))
    said += [(name, base.command.get(name), speculated.command.get(name)) for name in SAME_SERVER]
    differing = [f"{name} {one!r} and {other!r}" for name, one, other in said if one != other]
    if differing:
        raise UsageError(f"not the same protocol: {'; '.join(differing)}")


def _shared_cells(plan: Json) -> list[Json]:
    return [cell for cell in plan["cells"] if cell["kind"] != "al"]


def settings_diff(base: Json, speculated: Json) -> tuple[list[str], list[str]]:
    """Settings of one server that the other hasn't, each way."""
    mine, theirs = settings(base), settings(speculated)
    return [s for s in mine if s not in theirs], [s for s in theirs if s not in mine]


def settings(started: Json) -> list[str]:
    """NAME=value of the environment, and each option with its values."""
    lines = [f"{name}={value}" for name, value in sorted(started["env"].items())]
    words: list[list[str]] = [[]]
    for word in started["argv"]:
        if re.match(r"--?[A-Za-z]", word):
            words.append([])
        words[-1].append(word)
    lines += map(shlex.join, words)
    return [line for line in lines if not OF_THE_PLACE.match(line)]


def verdicts(base: Side, speculated: Side) -> Iterator[Verdict]:
    yield _settings(base, speculated)
    for cell in _shared_cells(base.plan):
        if cell["kind"] == "score":
            name = f"{cell['task']} conc={cell['concurrency']}"
            yield _pair(base, speculated, name, "accuracy_difference", accuracy)
        else:
            name = f"serving isl={cell['isl']} osl={cell['osl']} conc={cell['concurrency']}"
            yield _pair(base, speculated, name, "speed_up", speed)
            if base.plan["hw"] != "cpu":
                yield _pair(base, speculated, name, "energy_ratio", energy)
    if any((side.directory / GREEDY).exists() for side in (base, speculated)):
        outputs = (lossless.read(side.directory / GREEDY) for side in (base, speculated))
        yield lossless.judge(*outputs)[1]


def _settings(base: Side, speculated: Side) -> Verdict:
    removed, added = settings_diff(base.command, speculated.command)
    other = [line for line in (*removed, *added) if not OF_SPECULATION.match(line)]
    if not other:
        return Verdict(Outcome.PASS, "settings", "differences", 0.0, upper=0.0)
    text = f"{'; '.join(other)}: speculation is not all that differs; run the twins as they are"
    return Verdict(
        Outcome.NOT_MEASURED,
        "settings",
        "differences",
        float(len(other)),
        upper=0.0,
        reason="settings_differ",
        detail=text,
    )


def _pair(base: Side, speculated: Side, cell: str, check: str, of_two: Compare) -> Verdict:
    """A verdict on one cell of both; none where either has none of its own."""
    pair: list[Result] = []
    for side in (base, speculated):
        own = side.verdicts[cell]  # the gate has one on every cell of a plan
        if own.outcome not in (Outcome.PASS, Outcome.FAIL) or own.measured is None:
            return unmeasured(cell, check, "not_measured", f"{side.directory}: {own.why()}")
        pair.append((own.measured, side.file(own)))
    return of_two(cell, *pair)


def accuracy(cell: str, base: Result, speculated: Result) -> Verdict:
    """Parity: two shares of correct answers that don't differ significantly."""
    (mine, my_file), (theirs, their_file) = base, speculated
    task = cell.partition(" ")[0]
    sizes = [data["n-samples"][task]["effective"] for data in (my_file, their_file)]
    both = mine, sizes[0], theirs, sizes[1]
    p_value, (lower, upper) = proportion.p_value(*both), proportion.difference(*both)
    apart = not p_value >= SIGNIFICANCE
    return Verdict(
        Outcome.FAIL if apart else Outcome.PASS,
        cell,
        "accuracy_difference",
        measured=theirs - mine,
        source=f"two proportions, significant below {SIGNIFICANCE:g}",
        reason="accuracy_differs" if apart else "",
        detail=(
            f"{mine:.4f} and {theirs:.4f} with speculation, p = {p_value:.3g}; 95 % "
            f"interval of the difference {lower:+.3f} to {upper:+.3f}"
        ),
    )


def speed(cell: str, base: Result, speculated: Result) -> Verdict:
    """Ratio of output tokens a second; latencies beside it."""
    mine, theirs = base[1], speculated[1]
    if other := [name for name in SAME_LOAD if mine.get(name) != theirs.get(name)]:
        text = f"{', '.join(other)} differ: the servers did different work; run both anew"
        return unmeasured(cell, "speed_up", "other_load", text)
    rates = [data["output_tokens_per_s"] for data in (mine, theirs)]
    latencies = [
        f"{key.removesuffix('_s')} {mine[key]['p50'] * 1e3:.1f} → {theirs[key]['p50'] * 1e3:.1f} ms"
        for key in ("ttft_s", "tpot_s", "e2e_s")
        if mine[key] and theirs[key]
    ]
    acceptance = theirs.get("acceptance")
    if acceptance:
        latencies.append(f"AL {acceptance['acceptance_length']:.4f} meanwhile")
    return Verdict(
        Outcome.PASS,
        cell,
        "speed_up",
        measured=rates[1] / rates[0],
        detail=(
            f"{rates[0]:.1f} → {rates[1]:.1f} output tokens/s, {mine['total_output_tokens']} and "
            f"{theirs['total_output_tokens']} tokens; medians: {', '.join(latencies)}; one run each"
        ),
    )


def energy(cell: str, base: Result, speculated: Result) -> Verdict:
    """Ratio of joules per output token."""
    gpus = [data.get("gpu", {}) for _, data in (base, speculated)]
    states = [gpu.get("state", "not_recorded") for gpu in gpus]
    for state, gpu in zip(states, gpus, strict=True):
        if state != "complete":
            why = gpu.get("reason") or "run the serving benchmark of today"
            text = f"GPU power is {states[0]} and {states[1]} with speculation: {why}"
            return unmeasured(cell, "energy_ratio", state, text)
    joules = [gpu.get("energy_per_output_token_j") for gpu in gpus]
    if any(one is None or not one > 0 for one in joules):
        text = f"{joules[0]} and {joules[1]} J per output token: see the driver's power readings"
        return unmeasured(cell, "energy_ratio", "no_energy", text)
    return Verdict(
        Outcome.PASS,
        cell,
        "energy_ratio",
        measured=joules[1] / joules[0],
        detail=f"{joules[0]:.3f} → {joules[1]:.3f} J per output token",
    )
