"""GitHub's `${{ … }}`, as much of it as our workflows use; anything else is refused by name."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from utils.errors import UsageError

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<operator>==|!=|&&|\|\||[!()])"
    r"|(?P<name>[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)|(?P<number>\d+))"
)
# Python's grammar with GitHub's precedence: `~` binds as tightly as GitHub's `!`.
_PYTHON = {"&&": " and ", "||": " or ", "!": "~", "true": "True", "false": "False"}
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
    names: dict[str, str] = {}
    try:
        return _value(ast.parse(_python(text.strip(), names), mode="eval").body, names, scope)
    except (SyntaxError, UsageError) as error:
        why = "can't be read" if isinstance(error, SyntaxError) else error
        raise UsageError(f"expression {text.strip()!r}: {why}") from error


def _python(text: str, names: dict[str, str]) -> str:
    """The same as Python's; contexts and functions become names that Python takes."""
    words, at = [], 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if not token:
            raise UsageError(f"can't read {text[at:]!r}")
        word = token[str(token.lastgroup)]
        if token["text"]:
            word = repr(word[1:-1].replace("''", "'"))
        elif token["name"] and word not in _PYTHON:
            names[f"name{len(names)}"] = word
            word = f"name{len(names) - 1}"
        words.append(_PYTHON.get(word, f" {word}"))
        at = token.end()
    return "".join(words).strip()


def _value(node: ast.expr, names: Mapping[str, str], scope: Scope) -> Any:
    def inner(one: ast.expr) -> Any:
        return _value(one, names, scope)

    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return scope.look_up(names[name])
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return not truth(inner(operand))
        case ast.BoolOp(op=operator, values=operands):
            values = [inner(operand) for operand in operands]  # all: each name must be known
            wanted = isinstance(operator, ast.Or)
            return next((value for value in values if truth(value) is wanted), values[-1])
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as operator], comparators=[right]):
            one, other = inner(left), inner(right)
            if type(one) is not type(other):
                raise UsageError(f"compares {one!r} with {other!r}")
            return (one == other) is isinstance(operator, ast.Eq)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(names[name], [inner(argument) for argument in arguments], scope)
    raise UsageError("can't be read")


def _call(name: str, arguments: list[Any], scope: Scope) -> Any:
    if name in STATUS_FUNCTIONS and not arguments:
        return scope.status[name]
    if name != "fromJSON" or len(arguments) != 1:
        raise UsageError(f"unknown function {name}")
    try:
        return json.loads(arguments[0])
    except (TypeError, ValueError) as error:
        raise UsageError(f"{arguments[0]!r} is no JSON") from error
