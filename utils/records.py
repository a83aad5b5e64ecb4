"""Reading and writing of every JSON and YAML file: strict, atomic, checked by schema."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from datetime import datetime, timezone
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from utils import errors, schema_check
from utils.errors import HarnessError, NotMeasured, UsageError

SCHEMAS = Path(__file__).parent / "schemas"
Json = dict[str, Any]
DIGITS = 300  # of a whole number; one that no float can hold breaks whoever divides by it


def utc_now() -> str:
    """Now as RFC 3339 in UTC, e.g. 2026-12-01T10:00:00.123456Z."""
    return format_time(datetime.now(timezone.utc).timestamp())


def format_time(unix_seconds: float) -> str:
    moment = datetime.fromtimestamp(unix_seconds, timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_time(text: str) -> float:
    """RFC 3339 → unix seconds.

    Raises:
        NotMeasured: the text isn't a time with a zone.
    """
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise NotMeasured(f"{text!r} is not an RFC 3339 time") from error
    if moment.tzinfo is None:
        raise NotMeasured(f"{text!r} has no time zone; write UTC as ...Z")
    return moment.timestamp()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that a record may hold")


@lru_cache(maxsize=256)  # of the few floats in a result most come again and again
def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def whole(text: str) -> int | None:
    """The number that a text of nothing but digits stands for."""
    return int(text) if text.isdecimal() and len(text) <= DIGITS else None


@lru_cache(maxsize=1024)
def _whole(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"{text[:9]}… of {len(text)} digits is too large for a number")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is given twice")
    return found


# json.loads would build one for every text.
_STRICT: Json = {"parse_constant": _refuse_constant, "parse_float": _finite}
_DECODER = json.JSONDecoder(**_STRICT)
# Twice the time, which streams can't spare.
_OF_FILES = json.JSONDecoder(**_STRICT, parse_int=_whole, object_pairs_hook=_unique)
READ_AT_ONCE = 1 << 16


def parse_json(text: str, decoder: json.JSONDecoder = _DECODER) -> Any:
    """Strict JSON: NaN, Infinity and 1e999, which json.loads would accept, raise ValueError."""
    try:
        return _parse(text, decoder)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _parse(text: str, decoder: json.JSONDecoder) -> Any:
    try:
        value, end = decoder.raw_decode(text)
    except json.JSONDecodeError:
        return decoder.decode(text)  # white space before it, or an error
    return decoder.decode(text) if text[end:].strip(" \t\n\r") else value


def _read(path: Path | str) -> str:
    """A file's text by system calls: a file object costs as much as parsing a small result."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe that nobody writes is empty
    try:
        parts = []
        while part := os.read(handle, READ_AT_ONCE):  # network file systems may hand out less
            parts.append(part)
    finally:
        os.close(handle)
    return b"".join(parts).decode()


def read_json(path: Path | str, schema: str | None = None) -> Any:
    """Read one strict JSON file, and check it against its schema if one is named.

    Raises:
        NotMeasured: missing, empty, truncated, not UTF-8, not JSON, with NaN or Infinity in it, or
            of another shape than the schema's.
    """
    try:
        text = _read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise NotMeasured(f"{path}: can't be read ({error})") from error
    if not text or text.isspace():
        raise NotMeasured(f"{path}: the file is empty")
    try:
        data = parse_json(text, _OF_FILES)
    except ValueError as error:
        raise NotMeasured(f"{path}: not valid JSON ({error})") from error
    if schema and (problem := schema_problem(data, schema)):
        raise NotMeasured(f"{path}: {problem} (schema {schema})", "wrong_shape")
    return data


def read_yaml(path: Path, schema: str) -> Json:
    """Read one configuration file and check it against its schema.

    Raises:
        UsageError: it can't be read, parsed, or breaks the schema.
    """
    data = parse_yaml(path)
    if problem := schema_problem(data, schema):
        raise UsageError(f"{path}: {problem} (schema {schema})")
    return data  # type: ignore[no-any-return]  # the schema says that it is an object


def parse_yaml(path: Path) -> Any:
    """Strict YAML: no key twice, finite numbers, `on` and `off` are words.

    Raises:
        UsageError: it can't be read or parsed.
    """
    import yaml  # slow, and not for JSON

    from utils.strict_yaml import StrictLoader

    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=StrictLoader)
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
        detail = " ".join(str(error).split())
        raise UsageError(f"{path}: can't be read as YAML ({detail})") from error


def write_json(path: Path, data: Any, schema: str | None = None) -> None:
    """Write a file whole or not at all: sorted keys, no NaN, final newline, mode of the umask.

    Raises:
        HarnessError: the data breaks its schema or holds a number that isn't finite.
    """
    if schema and (problem := schema_problem(data, schema)):
        raise HarnessError(f"{path}: would break schema {schema}: {problem}")
    try:
        text = json.dumps(data, indent=2, sort_keys=True, allow_nan=False) + "\n"
    except ValueError as error:
        raise HarnessError(f"{path}: {error}") from error
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all (temporary file in the same folder, then rename).

    Raises:
        HarnessError: it can't be written, e.g. on a full disk.
    """
    try:
        _write_text(path, text)
    except OSError as error:
        raise HarnessError(f"{path}: can't be written ({error.strerror})") from error


def _write_text(path: Path, text: str) -> None:
    import tempfile  # slow, and only for writers

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        # A lone surrogate, which JSON can bring in, has no UTF-8.
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@cache
def _schema(name: str) -> Json:
    return dict(read_json(SCHEMAS / f"{name}.json"))


@cache
def _validator(name: str) -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(_schema(name))


@cache
def fast_check(name: str) -> Callable[[Any], bool]:
    """A predicate that may say no where jsonschema says yes, never the other way round."""
    try:
        return schema_check.compiled(_schema(name))
    except schema_check.UnknownKeyword:
        return lambda _: False


def schema_problem(data: Any, schema: str) -> str | None:
    """The most telling violation of a schema as "where: what", or None."""
    if fast_check(schema)(data):
        return None
    import jsonschema  # slow to import, so only for what is wrong

    error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(data))
    if error is None:
        return None
    return f"{error.json_path}: {_shorten(error.message)}"


def _shorten(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


if __name__ == "__main__":
    from utils import record_kinds

    raise SystemExit(errors.run(record_kinds.main))
