"""Cells of a golden curve, and what a measurement must be before it counts as one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from utils.acceptance import outputs
from utils.acceptance.client import Answer
from utils.errors import NotMeasured
from utils.evals import al_record
from utils.golden.rows import Row
from utils.records import Json

MAX_LOOPING_SHARE = 0.1
MIN_THINKING_SHARE = 0.9
# An engine that stops drafting says so in its log, and counts on as if nothing were amiss.
DRAFTING_OFF = re.compile(
    r"speculative decoding (?:is|was|has been|will be) (?:disabled|turned off)"
    r"|(?:disabling|falling back (?:to|from)) (?:non-)?specul\w+"
    r"|draft(?:er| model| head)? (?:is|was|has been|will be) (?:disabled|skipped|not loaded)"
    r"|(?:skipping|disabling) (?:the )?draft",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Cell:
    """One measurement to make; run counts repeats from 1."""

    thinking: str
    num_speculative_tokens: int
    run: int

    def __str__(self) -> str:
        return f"{self.thinking} N={self.num_speculative_tokens} run {self.run}"

    @property
    def folder(self) -> str:
        return f"{self.thinking}_mtp{self.num_speculative_tokens}_run{self.run}"


def check(record: Json, row: Row, cell: Cell, log: str) -> al_record.Figures:
    """The figures of a record that counts.

    Raises:
        NotMeasured: it doesn't, with the reason's name.
    """
    found = al_record.figures(record)
    if not found.accepted:
        raise NotMeasured(f"nothing was accepted in {found.steps} steps", "drafter_inactive")
    if differs := list(_differences(record, row, cell)):
        raise NotMeasured("; ".join(differs), "other_cell")
    refuse_prefix_caching(record)
    if record["server"].get("prefix_caching") is None:
        text = (
            "the server does not say whether it caches prefixes; turn that off on its command line"
        )
        raise NotMeasured(text, "prefix_caching")
    _check_outputs([Answer.from_json(answer) for answer in record["raw"]["requests"]], cell)
    _check_log(log)
    return found


def refuse_prefix_caching(record: Json) -> None:
    """A hit skips a prefill and can pad the first step with drafts that nobody made.

    Raises:
        NotMeasured: the server cached prefixes.
    """
    if record["server"].get("prefix_caching"):
        raise NotMeasured("the server caches prefixes; serve without", "prefix_caching")


def _differences(record: Json, row: Row, cell: Cell) -> Iterator[str]:
    spoken = record["speculation"]
    wanted = {
        "model_prefix": (record["model_prefix"], row.model.prefix),
        "thinking": (record["thinking_mode"], cell.thinking),
        "N": (record["num_speculative_tokens"], cell.num_speculative_tokens),
        "method": (spoken["method"], row.method),
        **{name: (spoken[name], row.speculation[name]) for name in spoken.keys() & row.speculation},
    }
    for name, (has, want) in wanted.items():
        if has != want:
            yield f"{name} is {has}, want {want}"


def _check_outputs(answers: Sequence[Answer], cell: Cell) -> None:
    total = len(answers)
    looping = sum(map(outputs.repeats, answers))
    if not looping <= MAX_LOOPING_SHARE * total:
        raise NotMeasured(
            f"{looping} of {total} outputs go round in loops, at most {MAX_LOOPING_SHARE:.0%} may",
            "degenerate_outputs",
        )
    thinking = sum(map(outputs.reasons, answers))
    if cell.thinking == "on" and not thinking >= MIN_THINKING_SHARE * total:
        raise NotMeasured(
            f"{thinking} of {total} outputs reason, want {MIN_THINKING_SHARE:.0%}", "thinking_seen"
        )


def _check_log(log: str) -> None:
    if not log.strip():
        raise NotMeasured("the server's log is empty: it can't show that it drafted", "no_log")
    for line in log.splitlines():
        if DRAFTING_OFF.search(line):
            raise NotMeasured(f"the server's log says: {line.strip()[:200]}", "drafting_disabled")
