"""Speculation must not change what is said at temperature 0: two servers' outputs compared.

Where they part, the margin of the server without speculation tells a numeric tie, which another
batch shape can tip over, from a verifier that accepts what it must not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from utils import records
from utils.errors import NotMeasured, UsageError
from utils.records import Json
from utils.serving.greedy import NONE
from utils.verdicts import Outcome, Verdict, exit_status

SAME = ("model", "model_prefix", "thinking", "prompts_sha256", "output_len")
# bf16 keeps 8 bits, so logits of 16 to 32 are spaced by 0.125. Ten partings of a sound verifier
# (vLLM 0.32 on a CPU) had 0 to 0.25; what a broken one lets through is nats away, or no runner-up.
TIE_NATS = 0.5
LEAST_COMPARED = 0.5
CHECK = "broken_partings"


@dataclass(frozen=True)
class Parting:
    """Where one prompt's outputs part. base, speculated: tokens there, None after the last one.

    runner_up, margin: the base's next likeliest token, and how many nats it is behind.
    """

    prompt: str
    index: int
    base: str | None
    speculated: str | None
    runner_up: str | None
    margin: float | None

    @property
    def near(self) -> bool:
        return self.margin is not None and self.margin <= TIE_NATS

    @property
    def tie(self) -> bool:
        return self.near and self.speculated is not None and self.speculated == self.runner_up

    @property
    def unknown(self) -> bool:
        """Nobody says how likely it was: past the base's last token, or an early but near end."""
        return self.margin is None or (self.near and self.speculated is None)

    def __str__(self) -> str:
        said = [
            repr(token) if token is not None else "the end"
            for token in (self.base, self.speculated)
        ]
        margin = "no margin" if self.margin is None else f"{self.margin:.4f} nats"
        what = "a numeric tie" if self.tie else "can't be told" if self.unknown else "no tie"
        return (
            f"{self.prompt}: token {self.index} is {said[0]}, with speculation {said[1]}; "
            f"runner-up {self.runner_up!r}, {margin} behind: {what}"
        )


def command(base: Path, speculated: Path) -> int:
    """Print every parting and the verdict."""
    partings, verdict = judge(read(base), read(speculated))
    for parting in partings:
        print(parting)
    print(verdict.line())
    return exit_status([verdict])


def read(path: Path) -> Json:
    """Outputs that `utils.serving.greedy` wrote.

    Raises:
        NotMeasured: unreadable, or of another shape.
    """
    try:
        data: Json = records.read_json(path, "greedy_outputs")
    except NotMeasured as error:
        raise NotMeasured(f"{error}; record it again", error.reason) from error
    for output in data["outputs"]:
        if any(margin is not None and margin < -TIE_NATS for margin in output["margins"]):
            text = f"{path}: {output['id']} has tokens that were not the likeliest: not greedy"
            raise NotMeasured(text, "not_greedy")
        if len({len(output[name]) for name in ("tokens", "runners_up", "margins")}) != 1:
            raise NotMeasured(
                f"{path}: {output['id']} has columns of unequal length", "wrong_shape"
            )
    return data


def judge(base: Json, speculated: Json) -> tuple[list[Parting], Verdict]:
    """Where the outputs part, and what that says of the verifier.

    Raises:
        UsageError: the two can't be compared.
    """
    _comparable(base, speculated)
    partings = list(_partings(base, speculated))
    ends = {parting.prompt: parting.index for parting in partings}
    total = sum(len(output["tokens"]) for output in base["outputs"])
    compared = sum(ends.get(o["id"], len(o["tokens"])) for o in base["outputs"])
    broken = [parting for parting in partings if not parting.tie]
    alike = len(base["outputs"]) - len(partings)
    detail = (
        f"{alike} of {len(base['outputs'])} prompts are the same to the last token, "
        f"{len(partings) - len(broken)} part at a numeric tie, of {_ties_met(base, ends)} met; "
        f"{compared} of {total} tokens compared, {speculated['accepted']} drafts accepted in "
        f"{speculated['steps']} steps"
    )
    outcome, reason = Outcome.PASS, ""
    if not speculated["accepted"]:
        outcome, reason = Outcome.NOT_MEASURED, "nothing_accepted"
    elif not all(parting.unknown for parting in broken):
        outcome, reason = Outcome.FAIL, "broken_verifier"
    elif broken:
        outcome, reason = Outcome.INCONCLUSIVE, "unknown_margin"
    elif not compared >= LEAST_COMPARED * total:
        outcome, reason = Outcome.INCONCLUSIVE, "too_little_compared"
    return partings, Verdict(
        outcome,
        "lossless",
        CHECK,
        measured=float(len(broken)),
        upper=0.0,
        source=f"a tie is {TIE_NATS:g} nats or less between the two likeliest tokens",
        reason=reason,
        detail=detail if outcome is Outcome.PASS else f"{detail}; {_remedy(reason, broken)}",
    )


def _ties_met(base: Json, ends: Mapping[str, int]) -> int:
    """Positions at which the outputs might have parted without blame."""
    return sum(
        margin is not None and margin <= TIE_NATS
        for output in base["outputs"]
        for margin in output["margins"][: ends.get(output["id"], len(output["tokens"])) + 1]
    )


def _remedy(reason: str, broken: list[Parting]) -> str:
    if reason == "nothing_accepted":
        return "a drafter that is off proves nothing; see the AL record"
    if reason == "too_little_compared":
        return "most of the text lies after a parting; record more prompts"
    return f"first: {broken[0]}"


def _comparable(base: Json, speculated: Json) -> None:
    differing = [
        f"{name} {base[name]!r} and {speculated[name]!r}"
        for name in SAME
        if base[name] != speculated[name]
    ]
    if differing:
        raise UsageError(f"the outputs were recorded in different ways: {'; '.join(differing)}")
    if [one["id"] for one in base["outputs"]] != [one["id"] for one in speculated["outputs"]]:
        raise UsageError("the outputs are of other prompts, or in another order: record both anew")
    if base["spec_decoding"] != NONE or speculated["spec_decoding"] == NONE:
        methods = f"{base['spec_decoding']} and {speculated['spec_decoding']}"
        raise UsageError(f"name the one without speculation first; these have {methods}")


def _partings(base: Json, speculated: Json) -> Iterator[Parting]:
    for one, other in zip(base["outputs"], speculated["outputs"], strict=True):
        mine, theirs = one["tokens"], other["tokens"]
        if mine == theirs:
            continue
        pairs = zip(mine, theirs, strict=False)
        shorter = min(len(mine), len(theirs))
        index = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
        inside = index < len(mine)
        yield Parting(
            one["id"],
            index,
            mine[index] if inside else None,
            theirs[index] if index < len(theirs) else None,
            one["runners_up"][index] if inside else None,
            one["margins"][index] if inside else None,
        )
