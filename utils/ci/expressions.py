"""GitHub's `${{ … }}`, as much of it as our workflows use; anything else is refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from utils.errors import UsageError

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<op>==|!=|&&|\|\||[!(),])"
    r"|(?P<name>[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)|(?P<number>\d+))"
)
_HOLE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
STATUS_FUNCTIONS = ("always", "success", "failure", "cancelled")


class Scope:
    """What an expression sees: contexts by name, and how things went so far.

    A name that no context has is refused: GitHub would quietly read it as an empty text.
    """

    def __init__(self, contexts: Mapping[str, Any], failed: bool, cancelled: bool, ran: bool):
        self.contexts = contexts
        self.status = {
            "always": True,
            "success": ran and not failed and not cancelled,
            "failure": failed and not cancelled,
            "cancelled": cancelled,
        }

    def look_up(self, path: str) -> Any:
        value: Any = self.contexts
        for part in path.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise UsageError(f"expression: nothing is called {path!r} here")
            value = value[part]
        return value


def condition(text: str, scope: Scope) -> bool:
    """An `if:`; without a status function in it, it holds only while nothing failed."""
    inner = text.strip().removeprefix("${{").removesuffix("}}")
    if not any(re.search(rf"\b{name}\(", inner) for name in STATUS_FUNCTIONS):
        inner = f"success() && ({inner})"
    return truth(evaluate(inner, scope))


def fill(value: Any, scope: Scope) -> Any:
    """A YAML value with its holes filled; one that is nothing but a hole keeps its type."""
    if isinstance(value, Mapping):
        return {key: fill(inner, scope) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, scope) for inner in value]
    if not isinstance(value, str):
        return value
    if whole := _HOLE.fullmatch(value.strip()):
        return evaluate(whole[1], scope)
    return _HOLE.sub(lambda hole: spell(evaluate(hole[1], scope)), value)


def spell(value: Any) -> str:
    """A value as GitHub writes it into a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise UsageError(f"expression: {value!r} is no text; use it whole")


def truth(value: Any) -> bool:
    return value not in (None, False, 0, "")


def evaluate(text: str, scope: Scope) -> Any:
    """The value of one expression.

    Raises:
        UsageError: it uses what is not known here.
    """
    parser = _Parser(text, scope)
    value = parser.either()
    if parser.tokens:
        raise UsageError(f"expression {text.strip()!r}: can't read from {parser.tokens[0][1]!r} on")
    return value


class _Parser:
    """Recursive descent: `||`, `&&`, comparison, `!`, then a value."""

    def __init__(self, text: str, scope: Scope) -> None:
        self.text, self.scope = text.strip(), scope
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(self.text):
            found = _TOKEN.match(self.text, at)
            if not found:
                raise UsageError(f"expression {self.text!r}: can't read {self.text[at:]!r}")
            self.tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            at = found.end()

    def take(self, *wanted: str) -> str | None:
        if self.tokens and self.tokens[0][0] == "op" and self.tokens[0][1] in wanted:
            return self.tokens.pop(0)[1]
        return None

    def either(self) -> Any:
        value = self.both()
        while self.take("||"):
            other = self.both()
            value = value if truth(value) else other
        return value

    def both(self) -> Any:
        value = self.compared()
        while self.take("&&"):
            other = self.compared()
            value = other if truth(value) else value
        return value

    def compared(self) -> Any:
        value = self.negated()
        if operator := self.take("==", "!="):
            other = self.negated()
            if type(value) is not type(other):
                raise UsageError(f"expression {self.text!r}: compares {value!r} with {other!r}")
            return (value == other) is (operator == "==")
        return value

    def negated(self) -> Any:
        return not truth(self.negated()) if self.take("!") else self.value()

    def value(self) -> Any:
        if self.take("("):
            value = self.either()
            self.close()
            return value
        kind, word = self.tokens.pop(0) if self.tokens else ("", "")
        if kind == "text":
            return word[1:-1].replace("''", "'")
        if kind == "number":
            return int(word)
        if word in ("true", "false"):
            return word == "true"
        if kind == "name":
            return self.call(word) if self.take("(") else self.scope.look_up(word)
        raise UsageError(f"expression {self.text!r}: a value is missing")

    def call(self, name: str) -> Any:
        if name in STATUS_FUNCTIONS:
            self.close()
            return self.scope.status[name]
        if name != "fromJSON":
            raise UsageError(f"expression {self.text!r}: unknown function {name}")
        text = self.either()
        self.close()
        try:
            return json.loads(text)
        except (TypeError, ValueError) as error:
            raise UsageError(f"expression {self.text!r}: {text!r} is no JSON") from error

    def close(self) -> None:
        if not self.take(")"):
            raise UsageError(f"expression {self.text!r}: a ')' is missing")
