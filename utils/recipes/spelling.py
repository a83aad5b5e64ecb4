"""Options that changed their name: recipes write today's, an older engine gets its own.

`ENGINE_VERSION` says which engine will run; unset, it is one that takes today's names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from utils.recipes.names import version_key

RENAMED = Path(__file__).parent / "options" / "renamed.json"
ANY = "*"


@dataclass(frozen=True)
class Rename:
    """Words in a row, `*` for any one word: `now` since a version, `before` until then."""

    since: str
    now: tuple[str, ...]
    before: tuple[str, ...]

    def old(self, words: Sequence[str]) -> list[str] | None:
        """The old spelling when the words begin with the new one."""
        if not _begins(words, self.now):
            return None
        values = iter(have for have, want in zip(words, self.now, strict=False) if want == ANY)
        return [next(values) if word == ANY else word for word in self.before]

    def is_old(self, words: Sequence[str]) -> bool:
        """Do the words begin with the old spelling?"""
        return _begins(words, self.before)


def _begins(words: Sequence[str], pattern: Sequence[str]) -> bool:
    pairs = zip(words, pattern, strict=False)
    return len(words) >= len(pattern) and all(want in (ANY, have) for have, want in pairs)


@cache
def renames(engine: str) -> tuple[Rename, ...]:
    data = json.loads(RENAMED.read_text(encoding="utf-8"))
    return tuple(
        Rename(row["since"], tuple(row["now"]), tuple(row["before"]))
        for row in data.get(engine, [])
    )


def spell(words: Sequence[str], engine: str, version: str) -> list[str]:
    """A command line as one version of its engine takes it."""
    older = [row for row in renames(engine) if version_key(version) < version_key(row.since)]
    spelled: list[str] = []
    rest = list(words)
    while rest:
        found = [(row, old) for row in older if (old := row.old(rest)) is not None]
        row, old = found[0] if found else (None, rest[:1])
        spelled += old
        del rest[: len(row.now) if row else 1]
    return spelled


def outdated(words: Sequence[str], engine: str) -> list[Rename]:
    """The renames whose old spelling is among the words."""
    return [row for row in renames(engine) if any(row.is_old(words[i:]) for i in range(len(words)))]


def spell_for(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """As `spell`, for the engine and version that a recipe's environment names."""
    version = environment.get("ENGINE_VERSION")
    if not version:
        return list(words)
    return spell(words, environment.get("ENGINE_FAMILY", ""), version)
