"""PyYAML's safe loader without what makes a configuration say something else than it seems to."""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

FLOAT, BOOLEAN = "tag:yaml.org,2002:float", "tag:yaml.org,2002:bool"
# libyaml's loader where it is built in.
Base: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class StrictLoader(Base):  # type: ignore[misc]  # one of two classes
    """Refuses a key given twice, of which YAML would silently keep the last."""

    # YAML 1.1 reads a bare on/off as a boolean; thinking modes are spelled on and off.
    yaml_implicit_resolvers = {  # noqa: RUF012 # the name is PyYAML's
        first: [(tag, rx) for tag, rx in rules if tag != BOOLEAN]
        for first, rules in Base.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: list[Any] = []  # not a set: a key may be a list, which is refused below
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise ValueError(f"key {key!r} is given twice, the second time in line {line}")
            seen.append(key)
        return super().construct_mapping(node, deep)


def _finite(loader: Any, node: Any) -> float:
    value: float = loader.construct_yaml_float(node)
    if not math.isfinite(value):
        raise ValueError(f"{node.value} in line {node.start_mark.line + 1} isn't finite")
    return value


StrictLoader.add_constructor(FLOAT, _finite)
StrictLoader.add_implicit_resolver(BOOLEAN, re.compile(r"^(?:true|false)$"), list("tf"))
