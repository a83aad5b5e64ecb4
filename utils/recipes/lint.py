"""Check recipes before a GPU is held: one finding a line, each of a named rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from utils.errors import UsageError
from utils.recipes import names, rehearsal
from utils.recipes.rehearsal import Rehearsal
from utils.recipes.rules import RULES
from utils.recipes.subject import Subject

NAME = "name"  # the rule before all others, which need to know what a recipe is


@dataclass(frozen=True)
class Finding:
    """A rule that a recipe breaks, and where."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        here = Path.cwd()
        path = self.path.relative_to(here) if self.path.is_relative_to(here) else self.path
        return f"{path}:{self.line}: {self.rule}: {self.text}"


def lint(recipes: Iterable[Path]) -> list[Finding]:
    """Every finding, in the order of the files and their lines."""
    named: list[Path] = []
    found: list[Finding] = []
    for recipe in recipes:
        try:
            names.parse(recipe.name)
            named.append(recipe)
        except UsageError as error:
            found.append(Finding(recipe, 1, NAME, str(error)))
    rehearsed = groupby(rehearsal.rehearse_all(named), key=lambda row: row.recipe)
    for path, rows in rehearsed:
        found += dict.fromkeys(_check(path, list(rows)))
    return sorted(found, key=lambda finding: (finding.path, finding.line))


def _check(path: Path, rehearsals: Sequence[Rehearsal]) -> Iterator[Finding]:
    subject = Subject(path, rehearsals)
    try:
        subject.model  # noqa: B018 # without a row there is nothing to compare with
    except UsageError as error:
        yield Finding(path, 1, NAME, str(error))
        return
    for name, rule in RULES.items():
        for line, text in rule(subject):
            yield Finding(path, line, name, text)
