"""JSON Schema as compiled predicates: a fast yes for files that are in order, which most are.

It never says yes where jsonschema would say no; whoever gets a no asks jsonschema, which also knows
why. A schema with a keyword that isn't known here is not compiled at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Check = Callable[[Any], bool]

TYPES: Mapping[str, Check] = {
    "null": lambda v: v is None,
    "boolean": lambda v: v is True or v is False,
    "integer": lambda v: type(v) is int or (type(v) is float and v.is_integer()),
    "number": lambda v: type(v) is int or type(v) is float,
    "string": lambda v: type(v) is str,
    "array": lambda v: type(v) is list,
    "object": lambda v: type(v) is dict,
}
SAYS_NOTHING = {"$schema", "$defs", "title", "description", "format"}


class UnknownKeyword(Exception):
    """A schema that this module can't judge."""


def compiled(schema: Mapping[str, Any]) -> Check:
    """A schema as one predicate.

    Raises:
        UnknownKeyword: it uses something that isn't known here.
    """
    return _Compiler(schema.get("$defs", {})).check(schema)


class _Compiler:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.definitions = definitions
        self.done: dict[str, Check] = {}

    def check(self, schema: Any) -> Check:
        if isinstance(schema, bool):
            return lambda _: schema
        left = {name: value for name, value in schema.items() if name not in SAYS_NOTHING}
        parts = [make(self, left) for names, make in KEYWORDS if names & left.keys()]
        known = {name for names, _ in KEYWORDS for name in names}
        if unknown := left.keys() - known:
            raise UnknownKeyword(", ".join(sorted(unknown)))
        return _all(parts)

    def reference(self, schema: Mapping[str, Any]) -> Check:
        name = schema["$ref"].removeprefix("#/$defs/")
        if name not in self.definitions:
            raise UnknownKeyword(f"$ref to {name}")
        if name not in self.done:
            self.done[name] = lambda value: self.done[name](value)  # for one that holds itself
            self.done[name] = self.check(self.definitions[name])
        return self.done[name]

    def type(self, schema: Mapping[str, Any]) -> Check:
        named = schema["type"]
        return _any([TYPES[name] for name in ([named] if isinstance(named, str) else named)])

    def values(self, schema: Mapping[str, Any]) -> Check:
        allowed = schema["enum"] if "enum" in schema else [schema["const"]]
        # True == 1 for Python, not for JSON.
        return lambda v: any(
            v == one and (type(v) is bool) == (type(one) is bool) for one in allowed
        )

    def object(self, schema: Mapping[str, Any]) -> Check:
        required = frozenset(schema.get("required", ()))
        own = {name: self.check(part) for name, part in schema.get("properties", {}).items()}
        other = self.check(schema.get("additionalProperties", True))
        least = schema.get("minProperties", 0)
        together = schema.get("dependentRequired", {})
        name_of = self.check(schema.get("propertyNames", True))

        def check(value: Any) -> bool:
            if type(value) is not dict:
                return True
            if not (required <= value.keys() and len(value) >= least):
                return False
            if any(n in value and not value.keys() >= set(more) for n, more in together.items()):
                return False
            return all(name_of(n) and own.get(n, other)(part) for n, part in value.items())

        return check

    def array(self, schema: Mapping[str, Any]) -> Check:
        first = [self.check(part) for part in schema.get("prefixItems", ())]
        rest = self.check(schema.get("items", True))
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        unique = schema.get("uniqueItems", False)

        def check(value: Any) -> bool:
            if type(value) is not list:
                return True
            if len(value) < least or (most is not None and len(value) > most):
                return False
            if unique and any(one in value[:at] for at, one in enumerate(value)):
                return False
            tail = value[len(first) :]
            return all(c(v) for c, v in zip(first, value, strict=False)) and all(map(rest, tail))

        return check

    def number(self, schema: Mapping[str, Any]) -> Check:
        least, most = schema.get("minimum"), schema.get("maximum")
        above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")

        def check(value: Any) -> bool:
            return type(value) not in (int, float) or (
                (least is None or value >= least)
                and (most is None or value <= most)
                and (above is None or value > above)
                and (below is None or value < below)
            )

        return check

    def text(self, schema: Mapping[str, Any]) -> Check:
        least, found = schema.get("minLength", 0), re.compile(schema.get("pattern", "")).search
        return lambda v: type(v) is not str or (len(v) >= least and found(v) is not None)

    def combined(self, schema: Mapping[str, Any]) -> Check:
        parts = []
        if "anyOf" in schema:
            parts.append(_any([self.check(part) for part in schema["anyOf"]]))
        if "oneOf" in schema:
            one_of = [self.check(part) for part in schema["oneOf"]]
            parts.append(lambda v: sum(check(v) for check in one_of) == 1)
        return _all(parts)

    def condition(self, schema: Mapping[str, Any]) -> Check:
        names = ("if", "then", "else")
        when, then, otherwise = (self.check(schema.get(name, True)) for name in names)
        return lambda v: then(v) if when(v) else otherwise(v)


def _all(checks: Sequence[Check]) -> Check:
    if len(checks) == 1:
        return checks[0]
    return lambda value: all(check(value) for check in checks)


def _any(checks: Sequence[Check]) -> Check:
    if len(checks) == 1:
        return checks[0]
    return lambda value: any(check(value) for check in checks)


KEYWORDS: Sequence[tuple[set[str], Callable[[_Compiler, Mapping[str, Any]], Check]]] = (
    ({"$ref"}, _Compiler.reference),
    ({"type"}, _Compiler.type),
    ({"enum", "const"}, _Compiler.values),
    (
        {
            *("required", "properties", "additionalProperties", "propertyNames"),
            *("minProperties", "dependentRequired"),
        },
        _Compiler.object,
    ),
    ({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}, _Compiler.array),
    ({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}, _Compiler.number),
    ({"minLength", "pattern"}, _Compiler.text),
    ({"anyOf", "oneOf"}, _Compiler.combined),
    ({"if", "then", "else"}, _Compiler.condition),
)
