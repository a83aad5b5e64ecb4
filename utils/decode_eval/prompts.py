"""Prompt sets, frozen at setup: one rule for every kind of file, the same bytes for every eval."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from utils import records
from utils.acceptance.client import Prompt
from utils.decode_eval.config import DecodeEvalConfig, PromptSource
from utils.errors import NotMeasured, UsageError
from utils.evals import prompt_files
from utils.evals.prompt_files import PromptFile
from utils.records import Json

Rows = Sequence[Json]
Message = dict[str, Any]
Convert = Callable[[Any], "list[Message] | None"]  # None: not usable
JSON_LINES = (".jsonl", ".ndjson")
SHAREGPT = "conversations"
ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant"}
_ID = re.compile(r"[\w-]+(/[\w-]+)?")  # of a data set; a file's name that is mistyped is none
_SLICE = re.compile(r"^(?P<name>[^\[]*)(?:\[(?P<first>[^:]*):(?P<last>[^:]*)\])?$")


def path_of(config: DecodeEvalConfig, name: str) -> Path:
    """The frozen file of one set."""
    return config.folder / "prompts" / f"{name}.jsonl"


def freeze(config: DecodeEvalConfig) -> dict[str, PromptFile]:
    """Every set of a run, by name: drawn at the first start, read back ever after.

    Raises:
        UsageError: a source can't be read or has too few prompts, or the run's own sets were
            drawn otherwise.
    """
    found = {}
    for source in config.sources:
        path = path_of(config, source.name)
        drawn_by = _selection(source, config.shuffle_seed)
        manifest = prompt_files.read_manifest(path) if path.exists() else {}
        if not manifest:
            _publish(path, source, draw(source, config.shuffle_seed), drawn_by)
        elif manifest["revision"] != drawn_by:
            raise UsageError(
                f"{path} was frozen from other settings of prompt set {source.name!r}; points of "
                "one run must share their prompts: undo the change or choose another output_dir"
            )
        found[source.name] = read(path)
    return found


def read(path: Path) -> PromptFile:
    """A frozen set.

    Raises:
        UsageError: the file isn't the one that its manifest describes.
    """
    manifest = prompt_files.read_manifest(path)
    if not manifest:
        raise UsageError(f"{path} has no manifest beside it")
    prompts = tuple(Prompt(row["id"], row["messages"]) for row in prompt_files.read_rows(path))
    digest = prompt_files.digest(prompts)
    return PromptFile(manifest["dataset"], manifest["revision"], True, digest, prompts)


def draw(source: PromptSource, seed: int) -> list[Json]:
    """The first num_prompts usable rows, in the order that the seed gives.

    Row i of the slice sorts by sha256("seed:i"), whatever kind of file it is from, so that
    neither a library nor its version decides.

    Raises:
        UsageError: too few usable rows.
    """
    rows = _sliced(source, load_rows(source))
    order = sorted(range(len(rows)), key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest())
    convert, column = _converter(source, rows)
    drawn, seen = list[Json](), set[str]()
    for index in order:
        messages = convert(rows[index].get(column))
        text = json.dumps(messages)
        if not messages or text in seen:
            continue
        seen.add(text)
        drawn.append({"id": f"{source.name}/{index}", "messages": messages})
        if len(drawn) == source.num_prompts:
            return drawn
    raise UsageError(
        f"prompt set {source.name!r}: {source.input_data} has {len(drawn)} different usable "
        f"prompts in {len(rows)} rows ({column}), num_prompts is {source.num_prompts}"
    )


def load_rows(source: PromptSource) -> Rows:
    """All rows of a source's split, before its slice.

    Raises:
        UsageError: it can't be read, or needs a library that isn't there.
    """
    path = Path(source.input_data)
    split = _parts(source)[0]
    if path.suffix in (".json", *JSON_LINES) and path.is_file():
        return _json_rows(path, split)
    if path.suffix == ".parquet" and path.is_file():
        return _parquet([path])
    if path.is_dir() and (files := sorted(path.glob("*.parquet"))):
        return _parquet(files)
    if not path.is_dir() and not _ID.fullmatch(source.input_data):
        raise UsageError(f"prompt set {source.name!r}: there is no file {path}")
    return _dataset(source, path, split)


def _json_rows(path: Path, split: str) -> Rows:
    if path.suffix in JSON_LINES:
        return prompt_files.read_rows(path)
    try:
        data = records.read_json(path)
    except NotMeasured as error:
        raise UsageError(str(error)) from error
    rows = data.get(split) if isinstance(data, dict) else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{path} is neither a list of objects nor an object with one at {split!r}")
    return rows


def _parquet(files: Sequence[Path]) -> Rows:
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError(f"{files[0]} needs pyarrow: pip install pyarrow") from error
    return [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]


def _dataset(source: PromptSource, path: Path, split: str) -> Rows:
    """A saved data set, or one that the datasets library finds by its id."""
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError(
            f"{path} is no JSON or Parquet file; a data set needs: pip install datasets"
        ) from error
    saved = path.is_dir() and any((path / n).exists() for n in ("state.json", "dataset_dict.json"))
    try:
        if saved:
            found = datasets.load_from_disk(str(path))
            found = found[split] if isinstance(found, datasets.DatasetDict) else found
        else:
            found = datasets.load_dataset(source.input_data, source.dataset_name, split=split)
    except (OSError, ValueError, KeyError) as error:  # what the library raises for a bad name
        raise UsageError(f"prompt set {source.name!r}: {source.input_data}: {error}") from error
    return list(found)


def _parts(source: PromptSource) -> tuple[str, str, str]:
    found = _SLICE.match(source.split)
    if not found:
        raise UsageError(f"split {source.split!r} is not like train[10:20]")
    return found["name"] or "train", found["first"] or "", found["last"] or ""


def _sliced(source: PromptSource, rows: Rows) -> Rows:
    _, first, last = _parts(source)

    def bound(text: str) -> int | None:
        if text.endswith("%"):
            return len(rows) * int(text[:-1]) // 100
        return int(text) if text else None

    return rows[bound(first) : bound(last)]


def _converter(source: PromptSource, rows: Rows) -> tuple[Convert, str]:
    """How a cell becomes messages, and the column it is in."""
    columns = sorted({name for row in rows for name in row})
    if source.token_ids_column:
        convert, wanted = _token_ids, [source.token_ids_column]
    elif source.prompt_column:
        convert, wanted = _text, [source.prompt_column]
    else:
        convert, wanted = _conversation, [source.messages_column, SHAREGPT]
    for column in wanted:
        if column in columns:
            return convert, column
    raise UsageError(
        f"prompt set {source.name!r}: {source.input_data} has no column {' or '.join(wanted)}; "
        f"it has {', '.join(columns) or 'no rows'}"
    )


def _token_ids(cell: Any) -> list[Message] | None:
    ids = [] if cell is None else list(cell)
    good = ids and all(type(one) is int and one >= 0 for one in ids)
    return [{"role": "user", "content": ids}] if good else None


def _text(cell: Any) -> list[Message] | None:
    """A string, or the first of several turns."""
    text = cell[0] if isinstance(cell, list) and cell else cell
    good = isinstance(text, str) and text.strip()
    return [{"role": "user", "content": text}] if good else None


def _conversation(cell: Any) -> list[Message] | None:
    """Chat or ShareGPT turns up to the last that isn't the assistant's."""
    turns = list(_turns(cell))
    while turns and turns[-1]["role"] == "assistant":
        turns.pop()
    said = all(isinstance(turn["content"], str) and turn["content"] for turn in turns)
    return turns if said and any(turn["role"] == "user" for turn in turns) else None


def _turns(cell: Any) -> Iterator[Message]:
    for turn in cell if isinstance(cell, list) else ():
        said: Any = turn if isinstance(turn, dict) else {}
        role = said.get("role") or said.get("from")
        content = said.get("content") or said.get("value")
        yield {"role": ROLES.get(str(role), role), "content": content}


def _selection(source: PromptSource, seed: int) -> str:
    """Digest of what decides which prompts a set has; limits of the answer don't."""
    parts = {**asdict(source), "seed": seed}
    del parts["max_new_tokens"]
    text = json.dumps(parts, sort_keys=True).encode()
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def _publish(path: Path, source: PromptSource, rows: Rows, drawn_by: str) -> None:
    file = Path(source.input_data)
    digests = {}
    if file.is_file():
        digests[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    facts: Json = {
        "dataset": f"decode_eval:{source.name}",
        "revision": drawn_by,
        "proxy": True,  # no golden is for these prompts
        "config": source.dataset_name or "decode_eval",
        "category": None,
        "script": None,
        "tools": {},
        "sources": [{"name": source.input_data, "revision": None, "files": digests}],
    }
    prompt_files.publish(path, [json.dumps(row, sort_keys=True) for row in rows], facts)
