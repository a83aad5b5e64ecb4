"""What can make an acceptance length wrong, and what in a record speaks for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from utils.acceptance import outputs
from utils.golden.case import Case
from utils.golden.cells import MIN_THINKING_SHARE


class Strength(IntEnum):
    """shown: the record itself says so. likely: figures that hardly mean anything else."""

    POSSIBLE = 1
    LIKELY = 2
    SHOWN = 3


Evidence = Iterator[tuple[Strength, str]]
POSSIBLE, LIKELY, SHOWN = Strength.POSSIBLE, Strength.LIKELY, Strength.SHOWN

INACTIVE = 0.1  # share of the golden's accepted tokens per step
NEAR = 0.02  # two acceptance lengths are taken for one another
NOTHING = 0.005  # share of steps at a position where nothing is accepted any more
SOMETHING = 0.02  # the same where something is, at the position before and in the golden
DRAFT_LENGTH = 0.02  # by how much of N the drafts of a step may differ from it
CAPPED, LONG_ENOUGH = 0.95, 1024  # share of outputs that never end, asked from so many tokens on
# Real requests differ by several times what dice would; asked of so many requests, and steps each.
DICE, REQUESTS, STEPS_EACH = 1.5, 20, 50
AT_FIRST = 0.6  # share of the loss that makes it the first position's
TEMPLATE_MARKS = re.compile(r"<\|[a-z_]+\|>|\[/?INST\]|<(?:start|end)_of_turn>")


def drafter_inactive(case: Case) -> Evidence:
    if case.steps and not case.accepted:
        yield SHOWN, f"none of the draft tokens of {case.steps} steps was accepted"
    elif case.golden and case.al < 1 + INACTIVE * (case.golden.acceptance_length - 1):
        usual = case.golden.acceptance_length - 1
        yield LIKELY, f"{case.al - 1:.3f} drafts are accepted a step, the golden's are {usual:.3f}"


def wrong_n(case: Case) -> Evidence:
    n = case.n
    asked = case.plan.get("num_speculative_tokens")
    if asked not in (None, n):
        yield SHOWN, f"the plan asks for N={asked}, the record is of N={n}"
    if case.spoken.num_speculative_tokens not in (None, n):
        yield SHOWN, f"the server's arguments say N={case.spoken.num_speculative_tokens}, not {n}"
    if case.reason == "read_back":
        yield SHOWN, case.error
    drafted = case.drafted_per_step
    if case.always_drafts and drafted and abs(drafted / n - 1) > DRAFT_LENGTH:
        yield LIKELY, f"{drafted:.2f} tokens are drafted a step, N is {n}"
    if cut := _cut_off_at(case):
        yield LIKELY, f"nothing is accepted from position {cut + 1} on, as with N={cut}"
    for other in case.curve:
        if other.n != n and case.is_near(other.acceptance_length, NEAR):
            yield POSSIBLE, f"the AL is that of N={other.n}, {other.acceptance_length:.2f}"


def _cut_off_at(case: Case) -> int | None:
    """The N that a profile looks like which ends all of a sudden, where the golden's goes on."""
    stored = case.golden_profile.shares if case.golden_profile else ()
    for k, (before, share, usual) in enumerate(
        zip(case.shares, case.shares[1:], stored[1:], strict=False), start=1
    ):
        if share < NOTHING <= SOMETHING < min(before, usual):
            return k
    return None


def wrong_thinking(case: Case) -> Evidence:
    mode, total = case.record["thinking_mode"], len(case.answers)
    thought = sum(map(outputs.reasons, case.answers))
    if mode == "on" and total and not thought >= MIN_THINKING_SHARE * total:
        yield (LIKELY if thought else SHOWN), f"{thought} of {total} outputs reason, all should"
    if mode == "off" and thought:
        yield SHOWN, f"{thought} of {total} outputs reason, none should"
    if told := case.differs("chat_template_kwargs"):
        yield LIKELY, told
    for other in case.other_mode:
        if case.is_near(other.acceptance_length, NEAR):
            usual = f"{other.thinking}, {other.acceptance_length:.2f}"
            yield POSSIBLE, f"the AL is that of thinking {usual}"


def sampling_mismatch(case: Case) -> Evidence:
    for name in case.differences:
        if name.startswith("sampling."):
            yield SHOWN, case.differs(name)
    for name in ("draft_sample_method", "rejection_sample_method"):
        if told := case.differs(name):
            yield SHOWN, told


def template_missing(case: Case) -> Evidence:
    if case.record.get("workload", {}).get("endpoint") == "completions":
        yield SHOWN, "prompts went to /v1/completions, which renders no chat template"
    marked = sum(bool(TEMPLATE_MARKS.search(answer.text)) for answer in case.answers)
    if marked:
        yield LIKELY, f"{marked} of {len(case.answers)} outputs hold marks of a chat template"
    capped = sum(answer.finish_reason == "length" for answer in case.answers)
    long = case.record["output_len"] >= LONG_ENOUGH
    if long and case.answers and capped >= CAPPED * len(case.answers):
        yield POSSIBLE, f"{capped} of {len(case.answers)} outputs never came to an end"


def synthetic_acceptance(case: Case) -> Evidence:
    if case.plan.get("synthetic_acceptance"):
        yield SHOWN, "the plan asks for synthetic acceptance"
    if case.spoken.not_real:
        yield SHOWN, f"the server's arguments: {', '.join(case.spoken.not_real)}"
    if case.reason == "forced_acceptance":
        yield SHOWN, case.error
    if told := case.broken("not_a_forced_value"):
        yield SHOWN, told
    effect = case.design_effect
    enough = len(case.rows) >= REQUESTS and case.steps >= STEPS_EACH * len(case.rows)
    if enough and effect is not None and effect < DICE:
        yield LIKELY, f"requests differ no more than dice would (design effect {effect:.2f})"


def foreign_traffic(case: Case) -> Evidence:
    for name in ("requests", "generated_tokens", "prompt_tokens"):
        if told := case.broken(f"server_{name}_equal_ours"):
            yield SHOWN, told


def other_prompts(case: Case) -> Evidence:
    for name in ("dataset", "category", "prompts_sha256", "prompts", "turns", "output_len"):
        if told := case.differs(name):
            yield SHOWN, told


def degenerate_loops(case: Case) -> Evidence:
    looping = [outputs.repeats(answer) for answer in case.answers]
    if not any(looping):
        return
    text = f"{sum(looping)} of {len(looping)} outputs go round in loops"
    rest = case.al_of([not loops for loops in looping])
    if rest is None or not case.golden:
        yield POSSIBLE, text
        return
    wanted = case.golden.acceptance_length
    closer = abs(rest - wanted) < abs(case.al - wanted)
    yield (LIKELY if closer else POSSIBLE), f"{text}; without them the AL is {rest:.4f}"


def another_drafter(case: Case) -> Evidence:
    for name in ("method", "draft_model"):
        if told := case.differs(name):
            yield SHOWN, told
    for key, (has, want) in case.other_settings.items():
        yield SHOWN, f"the server speculates with {key} {has}, the golden was collected with {want}"


def first_position_collapse(case: Case) -> Evidence:
    lost = case.loss
    if lost and lost.from_first >= AT_FIRST:
        yield LIKELY, f"{lost.first()}, which is {_share(lost.from_first)} of the loss"
        yield LIKELY, lost.given()


def later_positions_collapse(case: Case) -> Evidence:
    lost = case.loss
    if lost and not lost.from_first >= AT_FIRST:
        yield LIKELY, f"{lost.first()}, only {_share(lost.from_first)} of the loss"
        yield LIKELY, lost.given()


def _share(value: float) -> str:
    """Behind a worse first position the others may be better, then it is more than all."""
    return f"{min(value, 1.0):.0%}" if value <= 1 else "more than all"


def topology(case: Case) -> Evidence:
    parallel = case.plan.get("topology", {})
    ranks = max(parallel.get("engines", 1), case.ranks)
    if "log_windows" in case.record.get("raw", {}):
        yield POSSIBLE, "prefill and decode are apart: the draft may lack what the prefill computed"
    elif ranks > 1:
        yield POSSIBLE, f"{ranks} engines share the load, goldens are collected on one"
    if case.record.get("server", {}).get("prefix_caching"):
        yield POSSIBLE, "prefixes are cached: a hit can pad a request's first step"
    padded = case.al_without_first_steps
    suspect = ranks > 1 or case.record.get("server", {}).get("prefix_caching")
    if suspect and padded and case.is_low and case.is_goldens(padded, NEAR):
        yield LIKELY, f"without one empty step a request the AL would be {padded:.4f}"


@dataclass(frozen=True)
class Hypothesis:
    """A cause: what speaks for it in a case, and what to do if it is the one."""

    find: Callable[[Case], Evidence]
    remedy: str

    @property
    def name(self) -> str:
        return self.find.__name__


# In the order in which a person would look: what makes the figure void comes first.
HYPOTHESES = (
    Hypothesis(synthetic_acceptance, "serve without forced acceptance, then measure"),
    Hypothesis(foreign_traffic, "measure on a server that nobody else uses"),
    Hypothesis(drafter_inactive, "see in the server's log whether the draft weights were loaded"),
    Hypothesis(wrong_n, "serve with the N that was asked for"),
    Hypothesis(wrong_thinking, "send the mode's chat-template kwargs; check the reasoning parser"),
    Hypothesis(template_missing, "use the chat route, and the checkpoint's own template"),
    Hypothesis(sampling_mismatch, "send what the golden was collected with"),
    Hypothesis(other_prompts, "send the golden's prompts, all of them, to the same length"),
    Hypothesis(another_drafter, "serve the golden's drafter, or collect a golden for this one"),
    Hypothesis(degenerate_loops, "read the outputs; loops are easy to draft and raise the AL"),
    Hypothesis(
        first_position_collapse,
        "check draft weights, their revision and quantisation, and what the target hands them",
    ),
    Hypothesis(
        later_positions_collapse,
        "check how the drafter feeds on its own tokens: its KV cache, steps, top-k",
    ),
    Hypothesis(topology, "measure once on a single engine without prefix cache, and compare"),
)
