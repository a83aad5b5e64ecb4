"""Small changes to a module's syntax tree, one at a time, each of which some test must notice."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

COMPARE = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True)
class Mutant:
    """One changed module. name: what was changed, without a line number, so that it lasts."""

    line: int
    name: str
    tree: ast.Module


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module; annotations, docstrings and texts of messages are left alone."""
    tree = ast.parse(source)
    total = sum(1 for _ in _changes(tree))
    names: dict[str, int] = {}
    for number in range(total):
        changed = copy.deepcopy(tree)
        node, what, apply = next(c for i, c in enumerate(_changes(changed)) if i == number)
        before = ast.unparse(node)
        apply()
        name = f"{_function(changed, node)}: {_short(before)}: {what}"
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name += f" #{names[name]}"
        yield Mutant(getattr(node, "lineno", 0), name, ast.fix_missing_locations(changed))


Change = tuple[ast.AST, str, Callable[[], None]]


def _changes(tree: ast.Module) -> Iterator[Change]:
    for node in _code(tree):
        if isinstance(node, ast.Compare):
            for at, operator in enumerate(node.ops):
                if other := COMPARE.get(type(operator)):
                    yield (
                        node,
                        f"{type(operator).__name__} → {other.__name__}",
                        _set(node.ops, at, other()),
                    )
        elif isinstance(node, ast.BoolOp):
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield node, f"→ {other.__name__}", _attribute(node, "op", other())
            for at in range(len(node.values)):
                rest = [value for i, value in enumerate(node.values) if i != at]
                if len(rest) > 1:
                    yield node, f"without part {at + 1}", _attribute(node, "values", rest)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield (
                node,
                "without not",
                _attribute(node, "operand", ast.UnaryOp(ast.Not(), node.operand)),
            )
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test, "→ True", _attribute(node, "test", ast.Constant(True))
            yield node.test, "→ False", _attribute(node, "test", ast.Constant(False))
        elif isinstance(node, ast.BinOp) and (other := ARITHMETIC.get(type(node.op))):
            yield node, f"→ {other.__name__}", _attribute(node, "op", other())
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            value = not node.value if type(node.value) is bool else node.value + 1
            yield node, f"→ {value!r}", _attribute(node, "value", value)
        elif isinstance(node, ast.comprehension):
            for at, condition in enumerate(node.ifs):
                yield condition, "left out", _drop(node.ifs, at)
        elif isinstance(node, ast.Raise | ast.Continue):
            yield node, "→ pass", _replace(tree, node)
        elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
            yield node, "→ None", _attribute(node, "value", ast.Constant(None))
        elif isinstance(node, ast.Expr) and isinstance(
            node.value, ast.Call | ast.Yield | ast.YieldFrom
        ):
            yield node, "→ pass", _replace(tree, node)


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs, parents first; what a module does only as a script is left out."""
    for name, field in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for node in field if isinstance(field, list) else [field]:
            is_script = isinstance(tree, ast.Module) and isinstance(node, ast.If)
            if isinstance(node, ast.AST) and not isinstance(node, ast.JoinedStr) and not is_script:
                yield node
                yield from _code(node)


def _set(items: list[Any], at: int, value: Any) -> Callable[[], None]:
    return lambda: items.__setitem__(at, value)


def _drop(items: list[Any], at: int) -> Callable[[], None]:
    return lambda: items.pop(at)


def _attribute(node: ast.AST, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _replace(tree: ast.Module, statement: ast.stmt) -> Callable[[], None]:
    def apply() -> None:
        for node in ast.walk(tree):
            for _, field in ast.iter_fields(node):
                if isinstance(field, list) and statement in field:
                    field[field.index(statement)] = ast.Pass()

    return apply


def _function(tree: ast.Module, wanted: ast.AST) -> str:
    """The innermost function that a node is in."""
    line = getattr(wanted, "lineno", 0)
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(found, key=lambda node: node.lineno).name if found else "module"


def _short(text: str, limit: int = 70) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
