"""Prepared prompt files: a JSONL of prompts, and beside it the manifest that says what it is."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from utils import records
from utils.acceptance.client import Prompt
from utils.errors import NotMeasured, UsageError
from utils.models import PromptSet
from utils.records import Json

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
PROXY_CONFIG = "humaneval-proxy"
MANIFEST_VERSION = "prompt_manifest/2"
NAMED = 5  # ids that a message gives


@dataclass(frozen=True)
class PromptFile:
    """Prompts read from one file, and what they are.

    dataset: name by the manifest beside the file, "unlabelled" without one. revision: of the data
    set, None when unknown. proxy: stands in for SPEED-Bench and is never compared with its
    goldens. sha256: over ids and messages of the selected rows.
    """

    dataset: str
    revision: str | None
    proxy: bool
    sha256: str
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True)
class Conversation:
    """The user turns of one row, under its id."""

    id: str
    turns: tuple[str, ...]


def read_prompts(
    path: Path, category: str, limit: int | None = None, *, turns: str = "first"
) -> PromptFile:
    """First turn, or all turns, of each row of a category, in file order, at most `limit` rows.

    Raises:
        UsageError: unreadable file, no row of the category, too few rows, a placeholder, an empty
            or a repeated prompt; the message gives the ids.
    """
    rows = [row for row in read_rows(path) if row.get("category") == category]
    if not rows:
        raise UsageError(f"{path} has no row of category {category!r}")
    if limit is not None and len(rows) < limit:
        raise UsageError(f"{path} has {len(rows)} {category!r} rows, {limit} are needed")
    wanted = []
    for row in rows[:limit]:
        whole = conversation(path, row)
        wanted.append(whole if turns == "all" else Conversation(whole.id, whole.turns[:1]))
    refuse_bad(path, wanted)
    prompts = tuple(
        Prompt(c.id, ({"role": "user", "content": c.turns[0]},), c.turns[1:]) for c in wanted
    )
    manifest = read_manifest(path)
    return PromptFile(
        dataset=manifest.get("dataset", "unlabelled"),
        revision=manifest.get("revision"),
        proxy=manifest.get("proxy", False),
        sha256=digest(prompts),
        prompts=prompts,
    )


def read_rows(path: Path) -> list[Json]:
    """Every row of a JSONL file.

    Raises:
        UsageError: unreadable, or a line that is no strict JSON object.
    """
    try:
        # Not splitlines(): a JSON string may hold U+2028 and its like unescaped.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: can't be read ({error}); prepare it with `python3 -m utils.evals.speedbench "
            f"prepare --model-prefix $MODEL_PREFIX --output-dir {path.parent}`"
        ) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = records.parse_json(line)
        except ValueError as error:
            raise UsageError(f"{path}:{number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise UsageError(f"{path}:{number}: not an object")
        rows.append(row)
    return rows


def conversation(path: Path, row: Json) -> Conversation:
    """Accepts `messages` (prepared JSONL) and `turns` (the data set's own column)."""
    identity = row.get("question_id")
    found = row.get("messages") or row.get("turns") or [""]
    turns = [turn.get("content") if isinstance(turn, dict) else turn for turn in found]
    texts = tuple(turn for turn in turns if isinstance(turn, str))
    if not isinstance(identity, str) or len(texts) < len(turns):
        raise UsageError(f"{path}: row {identity!r} lacks question_id, or text in a turn")
    return Conversation(identity, texts)


def refuse_bad(where: Path | str, rows: Sequence[Conversation]) -> None:
    """Refuse what would measure nothing, or one prompt twice.

    Raises:
        UsageError: with the ids of the first kind found.
    """
    texts = Counter(row.turns for row in rows)
    ids = Counter(row.id for row in rows)
    bad: dict[str, Iterable[str]] = {
        "a placeholder for text": (r.id for r in rows if any(map(_is_placeholder, r.turns))),
        "an empty prompt": (r.id for r in rows if not all(turn.strip() for turn in r.turns)),
        "a prompt that another row has too": (r.id for r in rows if texts[r.turns] > 1),
        "an id that another row has too": (name for name, count in ids.items() if count > 1),
    }
    for what, found in bad.items():
        if names := list(found):
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            raise UsageError(
                f"{where}: {len(names)} rows with {what}: {', '.join(names[:NAMED])}{more}"
            )


def _is_placeholder(turn: str) -> bool:
    return turn.startswith(PLACEHOLDER)  # a template for the text may follow it


def digest(prompts: Sequence[Prompt]) -> str:
    """sha256 over ids and messages, in order."""
    rows = [
        [prompt.id, [dict(message) for message in prompt.messages], *prompt.later]
        for prompt in prompts
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def file_name(config: str, category: str | None) -> str:
    """Of a prepared file: one per configuration and category, so that none replaces another."""
    whole = category is None or config == PROXY_CONFIG
    return f"{config}.jsonl" if whole else f"{config}-{category}.jsonl"


def prepared_path(directory: Path, prompt_set: PromptSet) -> Path:
    return directory / file_name(prompt_set.config, prompt_set.category)


def manifest_path(path: Path) -> Path:
    return path.with_suffix(".manifest.json")


def read_manifest(path: Path) -> Json:
    """What a prompt file says it is, {} without a manifest.

    Raises:
        UsageError: the manifest is broken, or describes another file than the one beside it.
    """
    manifest = manifest_path(path)
    if not manifest.exists():
        return {}
    remedy = "delete both and prepare again"
    try:
        data: Json = records.read_json(manifest, "prompt_manifest")
        actual = hashlib.sha256(path.read_bytes()).hexdigest()
    except (NotMeasured, OSError) as error:
        raise UsageError(f"{error}: {remedy}") from error
    if data["sha256"] != actual:
        raise UsageError(
            f"{path} is not the file that {manifest.name} describes "
            f"(sha256 {actual[:12]}…, want {data['sha256'][:12]}…): {remedy}"
        )
    return data


def prepared_facts(path: Path) -> Json:
    """The manifest of a file that needs no preparation, {} for one that does.

    Raises:
        UsageError: the two are there and don't belong together.
    """
    if not path.exists():
        return {}
    try:
        outdated = records.read_json(manifest_path(path)).get("schema") != MANIFEST_VERSION
    except (NotMeasured, AttributeError):
        outdated = False  # missing, or broken: read_manifest says
    return {} if outdated else read_manifest(path)


def publish(path: Path, lines: Sequence[str], facts: Json) -> None:
    """Write a prompt file and its manifest; a manifest is there only while the file is whole."""
    text = "".join(f"{line}\n" for line in lines)
    manifest_path(path).unlink(missing_ok=True)
    records.write_text(path, text)
    manifest = {
        **facts,
        "schema": MANIFEST_VERSION,
        "rows": len(lines),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "created": records.utc_now(),
    }
    records.write_json(manifest_path(path), manifest, "prompt_manifest")
