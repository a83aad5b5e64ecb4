"""What a candidate golden file would change in the committed curve of its name."""

from __future__ import annotations

from pathlib import Path

from utils.golden import registry
from utils.golden.registry import FOLDER, Golden


def table(candidate: Path, name: str) -> str:
    """One line a cell: committed and new value, the change, and in what the two differ.

    Raises:
        UsageError: either file is unusable.
    """
    path = FOLDER / name
    new = list(registry.read(candidate))
    old = list(registry.read(path)) if path.exists() else []
    if not old:
        return "\n".join([f"golden_al/{name} would be new", *(f"  {_own(g)}" for g in new)])
    met = {id(golden) for one in new if (golden := nearest(one, old))}
    return "\n".join(
        [
            f"against golden_al/{name}:",
            *(f"  {_own(one)}{_change(one, nearest(one, old))}" for one in new),
            *(f"  {_own(golden)}: not in the candidate" for golden in old if id(golden) not in met),
        ]
    )


def nearest(one: Golden, goldens: list[Golden]) -> Golden | None:
    """The golden of the same mode and N that differs in least."""
    same = [golden for golden in goldens if (golden.thinking, golden.n) == (one.thinking, one.n)]
    return min(same, key=lambda golden: len(differences(one, golden)), default=None)


def differences(one: Golden, golden: Golden) -> list[str]:
    """In what a candidate departs from what a golden states."""
    return [
        f"{name} {value}, now {one.key.get(name)}"
        for name, value in golden.key.items()
        if value is not None and value != one.key.get(name)
    ]


def _own(golden: Golden) -> str:
    return f"{golden.thinking} N={golden.n}: AL {golden.acceptance_length:.4f}"


def _change(one: Golden, golden: Golden | None) -> str:
    if golden is None:
        return ", new"
    change = one.acceptance_length / golden.acceptance_length - 1
    differs = differences(one, golden)
    note = f"; not comparable: {'; '.join(differs)}" if differs else ""
    return f", {change:+.1%} from {golden.acceptance_length:.4f}{note}"
