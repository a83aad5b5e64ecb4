"""Options of another program's command line."""

from __future__ import annotations

from collections.abc import Sequence


def option(argv: Sequence[str], *names: str) -> str | None:
    """Value of the last of `--name value` or `--name=value`; dashes and underscores are one."""
    wanted = {name.replace("_", "-") for name in names}
    value = None
    for index, word in enumerate(argv):
        flag, equals, text = word.partition("=")
        if flag.replace("_", "-") in wanted:
            value = text if equals else next(iter(argv[index + 1 : index + 2]), None)
    return value


def number(argv: Sequence[str], *names: str) -> int | None:
    """As option(), for a whole number; None when it is something else."""
    value = option(argv, *names)
    return int(value) if value is not None and value.isdecimal() else None


def flag(argv: Sequence[str], name: str) -> bool:
    return name in {word.replace("_", "-") for word in argv}


def masked(argv: Sequence[str]) -> list[str]:
    """A command line without the values of its keys, tokens and passwords."""
    secret = ("key", "token", "password", "secret")
    shown, hide = [], False
    for word in argv:
        name, equals, _ = word.partition("=")
        is_secret = name.startswith("--") and name.replace("_", "-").endswith(secret)
        if hide and not word.startswith("--"):
            shown.append("***")
        else:
            shown.append(f"{name}=***" if is_secret and equals else word)
        hide = (is_secret and not equals) or (hide and not word.startswith("--"))
    return shown
