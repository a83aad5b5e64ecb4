"""Answers in lm-eval's log of samples: whether a score can rest on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from utils import records
from utils.errors import NotMeasured

# How models mark their reasoning where no parser of the server takes it out.
THINKING = (
    ("<think>", "</think>"),
    ("<|channel|>analysis", "<|channel|>final<|message|>"),
    ("[THINK]", "[/THINK]"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
)
# What lm-eval's filters make of an answer in which they find nothing.
NOTHING_FOUND = "[invalid]"


@dataclass(slots=True)
class Answer:
    """One document's answer. found: what filters took from it, without those that found nothing."""

    text: str
    found: list[str]


def check(path: str, name: str, documents: int, most: float) -> None:
    """That every document was answered, and that at most a share of answers is none.

    Raises:
        NotMeasured: the log can't be read or lacks documents, or too many answers are empty, cut
            off, or were taken from the reasoning, so that the score measures something else.
    """
    answers = _read(path, name)
    if len(answers) != documents:
        raise NotMeasured(
            f"{name} has {len(answers)} of {documents} documents; cut off? run it again",
            "partial",
        )
    for count, what, reason in _faults(list(answers.values())):
        if not count <= most * documents:
            raise NotMeasured(
                f"{count} of {documents} answers {what} ({count / documents:.0%}, at most "
                f"{most:.0%} may be); read {name}",
                reason,
            )


def _faults(answers: list[Answer]) -> Iterator[tuple[int, str, str]]:
    """How many answers are no answers, by cause; the first cause explains the later ones."""
    # A template that opens the reasoning in the prompt leaves only its end in the answers.
    opened = any(
        end in answer.text and start not in answer.text
        for answer in answers
        for start, end in THINKING
    )
    rests = [_without_reasoning(answer.text, opened) for answer in answers]
    yield (
        sum(rest is None for rest in rests),
        "were cut off while thinking: raise the task's token budget, look at its stop strings",
        "truncated_answers",
    )
    yield (
        sum(rest is not None and not rest.strip() for rest in rests),
        "are empty: raise the task's token budget, look at the server's reasoning parser",
        "empty_answers",
    )
    pairs = [(rest, a) for rest, a in zip(rests, answers, strict=True) if rest and rest.strip()]
    yield (
        sum(
            any(one not in rest and one in answer.text for one in answer.found)
            for rest, answer in pairs
        ),
        "were taken from the reasoning: give the server its reasoning parser",
        "reasoning_extracted",
    )
    yield (
        sum(not answer.found for _, answer in pairs),
        "hold nothing that any filter finds: raise the task's token budget, look at its stop "
        "strings and at the chat template",
        "no_answer_found",
    )


def _without_reasoning(text: str, opened: bool) -> str | None:
    """What follows the reasoning, which may have been opened in the prompt; None without an end."""
    for start, end in THINKING:
        if end in text:
            return text.rpartition(end)[2]
        if start in text:
            return None
    return None if opened else text


def _read(path: str, name: str) -> dict[Any, Answer]:
    """Answers by document; every filter of lm-eval repeats them on a line of its own."""
    answers: dict[Any, Answer] = {}
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                row = records.parse_json(line)
                text = str(row["resps"][0][0] or "")
                answer = answers.setdefault(row["doc_id"], Answer(text, []))
                found = row["filtered_resps"][0]
                if found != NOTHING_FOUND:
                    answer.found.append(str(found))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise NotMeasured(
            f"{name} can't be read ({error}); run the task again", "unreadable"
        ) from error
    return answers
