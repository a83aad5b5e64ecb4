"""Which recipes a sweep is about: patterns, hardware, speculation; none at all is an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from utils import models
from utils.errors import UsageError
from utils.recipes import names


@dataclass(frozen=True)
class Filter:
    """What is wanted; an empty list is anything. mtp: on, off or both."""

    recipes: Sequence[str]
    hw: Sequence[str]
    mtp: str

    def __str__(self) -> str:
        said = [("recipes", self.recipes), ("hw", self.hw), ("mtp", [self.mtp])]
        return ", ".join(f"{name} {' '.join(words)!r}" for name, words in said if words)


def select(folder: Path, wanted: Filter) -> list[Path]:
    """The recipes that fit, by name.

    Raises:
        UsageError: none does; the message names near ones, or the filter that leaves none.
    """
    every = sorted(folder.glob("*_node/*.sh"))
    for pattern in wanted.recipes:
        if not any(fnmatchcase(path.stem, pattern) for path in every):
            near = models.near(pattern.replace("*", ""), [path.stem for path in every])
            raise UsageError(f"no recipe is called {pattern!r}; {near}")
    known = {names.parse(path.name).hw for path in every}
    for hw in wanted.hw:
        if hw not in known:
            raise UsageError(f"no recipe is for hardware {hw!r}; {models.near(hw, known)}")
    found = [path for path in every if _fits(path, wanted)]
    if not found:
        named = [path.stem for path in every if _fits(path, Filter(wanted.recipes, (), "both"))]
        raise UsageError(f"no recipe fits {wanted}; by name alone there are {' '.join(named)}")
    return found


def _fits(path: Path, wanted: Filter) -> bool:
    name = names.parse(path.name)
    return (
        (not wanted.recipes or any(fnmatchcase(path.stem, p) for p in wanted.recipes))
        and (not wanted.hw or name.hw in wanted.hw)
        and wanted.mtp in ("both", "on" if name.speculative else "off")
    )
