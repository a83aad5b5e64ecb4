"""GPQA rows → four choices in an order that depends on the question alone."""

from __future__ import annotations

import hashlib
import random
from typing import Any

WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def with_choices(dataset: Any) -> Any:
    """Add `choices` (text, one a line) and `answer` ("(A)" to "(D)") to every row."""
    return dataset.map(row_with_choices)


def row_with_choices(row: dict[str, str]) -> dict[str, str]:
    right = row["Correct Answer"].strip()
    options = [right, *(row[name].strip() for name in WRONG)]
    # Seeded by the question: the order is the same in every run and for every subset of rows.
    seed = int(hashlib.sha256(row["Question"].encode()).hexdigest(), 16)
    random.Random(seed).shuffle(options)
    lines = [f"({letter}) {text}" for letter, text in zip("ABCD", options, strict=True)]
    return {"choices": "\n".join(lines), "answer": f"({'ABCD'[options.index(right)]})"}
