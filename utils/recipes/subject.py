"""A recipe as lint sees it: its text, its name, what it would start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from utils import models
from utils.acceptance.argv import option
from utils.recipes import catalogue, names
from utils.recipes.names import RecipeName
from utils.recipes.rehearsal import Rehearsal

_FLAGS = re.compile(r"# Flags: (?P<engine>\S+) (?P<versions>\d[\d.]*(?:, \d[\d.]*)*)$")


@dataclass(frozen=True)
class Subject:
    """One recipe with its rehearsals."""

    path: Path
    rehearsals: Sequence[Rehearsal]

    @cached_property
    def name(self) -> RecipeName:
        return names.parse(self.path.name)

    @cached_property
    def lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines()

    @cached_property
    def header(self) -> list[str]:
        """The comment on top, without the line that names the shell."""
        end = next((i for i, line in enumerate(self.lines) if line[:1] != "#"), len(self.lines))
        return [line for line in self.lines[:end] if not line.startswith("#!")]

    @cached_property
    def code(self) -> list[tuple[int, str]]:
        """(number, line) without comments and empty lines; continued lines are one."""
        found: list[tuple[int, str]] = []
        continued = False
        for number, line in enumerate(self.lines, start=1):
            text = line.strip()
            if text.startswith("#") or not text:
                continue
            if continued:
                start, before = found.pop()
                found.append((start, f"{before.removesuffix(chr(92)).rstrip()} {text}"))
            else:
                found.append((number, text))
            continued = text.endswith("\\")
        return found

    @cached_property
    def model(self) -> models.Model:
        return models.load(self.name.model)

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """Versions of the engine that the header names; on a CPU, the one that is embedded."""
        for line in self.header:
            if (found := _FLAGS.match(line)) and found["engine"] == self.name.engine_family:
                return tuple(found["versions"].split(", "))
        return catalogue.versions(self.name.engine_family)[-1:] if self.name.hw == "cpu" else ()

    @property
    def served(self) -> Iterator[Rehearsal]:
        """The rehearsals that came as far as a server."""
        return (row for row in self.rehearsals if row.command)

    def arguments(self) -> list[list[str]]:
        """The distinct command lines of its server."""
        found = {tuple(row.command.argv): None for row in self.served if row.command}
        return [list(argv) for argv in found]

    def values(self, *options: str) -> set[str | None]:
        """What a server's option is set to, over all topologies."""
        return {option(argv, *options) for argv in self.arguments()}

    def line_of(self, word: str) -> int:
        """The line where a word is written, else that of `serve`."""
        for wanted in (word, "serve"):
            whole = re.compile(rf"(?<![\w-]){re.escape(wanted)}(?![\w-])")
            for number, text in self.code:
                if whole.search(text):
                    return number
        return 1
