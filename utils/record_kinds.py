"""Files of ours and of others: which schema each has, by content, and what the schemas say."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from utils import errors, records
from utils.errors import NotMeasured, UsageError
from utils.records import SCHEMAS, Json

# Formats that don't carry their own name: the first whose mark is there.
MARKS: Mapping[str, Callable[[Json], bool]] = {
    "al_record_v1": lambda data: data.get("speedbench_al_eval_version") == 1,
    "al_record_v2": lambda data: "speedbench_al_eval_version" in data,
    "serving": lambda data: data.get("task") == "serving",
    "lm_eval_results": lambda data: "results" in data and "lm_eval_version" in data,
    "inferencex_agg": lambda data: "tput_per_gpu" in data and "conc" in data,
    "meta_env": lambda data: "infmax_model_prefix" in data and "conc" in data,
}


def main(argv: Sequence[str] | None = None) -> int:
    """`check FILE…`: one line per file, 3 when one is not what it should be; `docs`: a table."""
    parser = argparse.ArgumentParser(prog="python3 -m utils.records", description=main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    files = commands.add_parser("check", help="recognise files and check them")
    files.add_argument("files", nargs="+", type=Path, metavar="FILE")
    commands.add_parser("docs", help="print a table of every format")
    args = parser.parse_args(argv)
    if args.command == "docs":
        print(docs(), end="")
        return errors.PASS
    if absent := [str(path) for path in args.files if not path.is_file()]:
        raise UsageError(f"no such file: {', '.join(absent)}")
    return max([_line(path) for path in args.files])


def _line(path: Path) -> int:
    try:
        print(f"ok    {path}: {check(path)}")
    except NotMeasured as error:
        print(f"wrong {path}: {str(error).removeprefix(f'{path}: ')}")
        return errors.NOT_MEASURED
    return errors.PASS


def check(path: Path) -> str:
    """One file's kind.

    Raises:
        NotMeasured: it can't be read, is of no known kind, or breaks its schema.
    """
    data = _read(path)
    kind = kind_of(data)
    if kind is None:
        raise NotMeasured(f"no known kind of file; known: {', '.join(names())}", "unknown_kind")
    if problem := records.schema_problem(data, kind):
        raise NotMeasured(f"{kind}: {problem}", "wrong_shape")
    return kind


def names() -> list[str]:
    return sorted(path.stem for path in SCHEMAS.glob("*.json"))


def kind_of(data: Any) -> str | None:
    """By the name that a format carries, else by its marks."""
    if not isinstance(data, dict):
        return None
    named = str(data.get("schema")).partition("/")[0]
    if named in names():
        return named
    return next((kind for kind, has in MARKS.items() if has(data)), None)


def _read(path: Path) -> Any:
    if path.suffix not in (".yaml", ".yml"):
        return records.read_json(path)
    try:
        return records.parse_yaml(path)
    except UsageError as error:
        raise NotMeasured(str(error), "unreadable") from error


def docs() -> str:
    """A table of every schema, for docs/schemas.md."""
    lines = ["# File formats", "", "Made by `python3 -m utils.records docs > docs/schemas.md`."]
    for name in names():
        schema = records.read_json(SCHEMAS / f"{name}.json")
        lines += ["", f"## {name}", "", f"{schema['title']}.", ""]
        lines += ["| field | type | meaning |", "| --- | --- | --- |"]
        lines += _rows(schema, schema.get("$defs", {}), "")
    return "\n".join(lines) + "\n"


def _rows(schema: Json, definitions: Json, prefix: str) -> Iterator[str]:
    """One row a field, those of inner objects below it; `*` stands for any key, `[]` for items."""
    required = set(schema.get("required", ()))
    for field, part in schema.get("properties", {}).items():
        whole = _resolved(part, definitions)
        star = "" if field in required else " (optional)"
        meaning = part.get("description", whole.get("description", "")).replace("|", "\\|")
        yield f"| `{prefix}{field}`{star} | {_type(whole)} | {meaning} |"
        yield from _inner(whole, definitions, f"{prefix}{field}")


def _inner(part: Json, definitions: Json, path: str) -> Iterator[str]:
    yield from _rows(part, definitions, f"{path}.")
    for keyword, mark in (("additionalProperties", ".*"), ("items", "[]")):
        if isinstance(below := part.get(keyword), dict):
            yield from _inner(_resolved(below, definitions), definitions, f"{path}{mark}")
    for choice in part.get("oneOf", ()):
        yield from _rows(choice, definitions, f"{path}.")


def _resolved(part: Json, definitions: Json) -> Json:
    reference = part.get("$ref", "").removeprefix("#/$defs/")
    return {**definitions[reference], **part} if reference else part


def _type(part: Json) -> str:
    if "const" in part or "enum" in part:
        values = part.get("enum", [part.get("const")])
        return ", ".join(f"`{value}`" for value in values)
    named = part.get("type", "object" if "properties" in part else "any")
    return named if isinstance(named, str) else " or ".join(named)
