"""Golden AL → the engine's own setting for synthetic acceptance, and whether it came true.

A throughput run on random text accepts what no real traffic would; with this setting it accepts
as many tokens a step as the golden says. It makes up what evals measure, so they refuse it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from utils.errors import UsageError
from utils.golden.registry import DRAFTER, NO_DRAFT_MODEL, Golden
from utils.models import near
from utils.recipes import speculation
from utils.records import Json
from utils.verdicts import Outcome, Verdict

CHECK = "realised_acceptance_length"
DIGITS = 4
# Of the target, for what counters miss; and standard errors of steps drawn like dice, whose spread
# is at most N/2.
TOLERANCE = 0.02
ERRORS = 3.0
MIN_STEPS = 500


@dataclass(frozen=True)
class Forced:
    """How one engine is told. config: further keys of its speculative config.

    note: since when the engine has it, and what else must be so.
    """

    note: str
    config: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def _vllm(length: float) -> Forced:
    return Forced(
        "vLLM 0.20 and later, not on a CPU: /health is 200, the first generation ends the engine",
        config={"rejection_sample_method": "synthetic", "synthetic_acceptance_length": length},
    )


def _sglang(length: float) -> Forced:
    return Forced(
        "SGLang 0.5.16 and later; before, there was no TOKEN_MODE and the text was garbage",
        environment={
            "SGLANG_SIMULATE_ACC_LEN": str(length),
            "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
            "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
        },
    )


def _trtllm(length: float) -> Forced:
    return Forced(
        "TensorRT-LLM counts accepted drafts, without the bonus token: AL - 1; releases that take"
        " whole numbers only can't reach it, so read it back",
        environment={"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": str(round(length - 1, DIGITS))},
    )


def _atom(length: float) -> Forced:
    return Forced(
        "ATOM; it refuses this together with DSpark's confidence scheduler",
        arguments=("--spec-decode-acceptance-length", str(length)),
    )


def _llamacpp(length: float) -> Forced:
    return Forced(
        "llama.cpp from 2026-08-25 on (pull request 27711); before, it has no such setting",
        arguments=("--spec-synth-len", str(length)),
    )


ENGINES: Mapping[str, Callable[[float], Forced]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "trtllm": _trtllm,
    "trt": _trtllm,
    "atom": _atom,
    "llamacpp": _llamacpp,
}


def forced(engine: str, length: float, draft_length: int) -> Forced:
    """An engine's setting for an acceptance length, the bonus token counted.

    Raises:
        UsageError: the engine has none, or the length can't be reached with that N.
    """
    if engine not in ENGINES:
        raise UsageError(
            f"no setting for synthetic acceptance is known of {engine!r}; {near(engine, ENGINES)}"
        )
    if not 1.0 <= length <= draft_length + 1:
        raise UsageError(f"AL {length} can't be reached: with N={draft_length} it lies in 1..N+1")
    return ENGINES[engine](round(length, DIGITS))


def choose(goldens: Sequence[Golden], prefix: str, thinking: str, n: int, said: Json) -> Golden:
    """The one golden of a model, mode and N that agrees best with what is said of the drafter.

    Raises:
        UsageError: there is none of that method, or several agree equally well.
    """
    wanted = {"thinking": thinking, "num_speculative_tokens": n}
    if said.get("method"):
        wanted["method"] = said["method"]
    found = [
        golden
        for golden in goldens
        if golden.prefix == prefix and all(golden.key[k] == value for k, value in wanted.items())
    ]
    if not found:
        text = ", ".join(f"{name} {value}" for name, value in wanted.items())
        raise UsageError(f"no golden of {prefix} with {text}: nothing to force; collect one")

    def agreement(golden: Golden) -> int:
        return sum(golden.key[name] == said.get(name) for name in DRAFTER)

    best = [golden for golden in found if agreement(golden) == max(map(agreement, found))]
    if len(best) > 1:
        raise UsageError(
            f"{' and '.join(map(str, best))} agree equally; say draft_model=… and so on"
        )
    return best[0]


def of_plan(plan: Json, goldens: Sequence[Golden], thinking: str) -> Golden:
    """The golden that a run's synthetic acceptance was made from.

    Raises:
        UsageError: as choose().
    """
    said = {"method": plan["spec_decoding"], **{name: plan[name] for name in DRAFTER[1:]}}
    n = plan["num_speculative_tokens"]
    return choose(goldens, plan["model_prefix"], thinking, n, said)


def lines(engine: str, golden: Golden) -> Iterator[str]:
    """What to set for one golden, for people: complete where the harness knows the engine."""
    n, length = golden.n, golden.acceptance_length
    how = forced(engine, length, n)
    yield f"# AL {length:.4f} of {golden}; {how.note}"
    yield from (f"export {name}={shlex.quote(value)}" for name, value in how.environment.items())
    draft = golden.key["draft_model"]
    pairs = [] if draft in (None, NO_DRAFT_MODEL) else [f"draft_model={draft}"]
    arguments = list(how.arguments)
    if engine in ("vllm", "sglang"):
        said = speculation.parse(engine, golden.key["method"], str(n), pairs)
        arguments += said.arguments(how.config)
    if arguments:
        yield shlex.join(arguments)


def read_back(golden: Golden, measured: float | None, steps: int | None, cell: str) -> Verdict:
    """Whether a server accepted as much as it was told to, over so many steps."""
    target, n = golden.acceptance_length, golden.n
    source = f"synthetic acceptance, {golden}"
    if measured is None or steps is None or not steps >= MIN_STEPS:
        detail = f"want an AL over {MIN_STEPS} steps, there are {steps or 'none'}"
        outcome, reason = Outcome.NOT_MEASURED, "not_read_back"
        return Verdict(outcome, cell, CHECK, measured, source=source, reason=reason, detail=detail)
    margin = TOLERANCE * target + ERRORS * n / 2 / math.sqrt(steps)
    lower, upper = target - margin, target + margin
    if lower <= measured <= upper:
        return Verdict(Outcome.PASS, cell, CHECK, measured, lower, upper, source)
    detail = f"the engine was told {target:.4f}: does this release know the setting?"
    return Verdict(
        Outcome.FAIL, cell, CHECK, measured, lower, upper, source, "not_realised", detail
    )
