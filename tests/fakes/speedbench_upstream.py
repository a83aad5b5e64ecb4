"""Made-up data with the structure of SPEED-Bench, and a script with that of its preparation."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from utils.evals import speedbench_source
from utils.evals.prompt_files import PLACEHOLDER

REVISIONS = {
    speedbench_source.DATASET: speedbench_source.REVISION,
    "made/up": "a" * 40,
    "made/unpinned": "b" * 40,
    "cais/hle": "c" * 40,
}
CATEGORIES = ("coding", "math")
EACH = 80

# What upstream's does: load the set without a revision, fetch the text of rows that start with
# the placeholder, leave those of an unknown source as they are, write messages.
SCRIPT = f"""\
import argparse, os, time
from pathlib import Path
import numpy, pandas as pd, tiktoken
from datasets import load_dataset

PLACEHOLDER = {PLACEHOLDER!r}
SOURCES = {{}}


def text(row):
    source = row["source"]
    if source not in SOURCES:
        if source == "made/up":
            SOURCES[source] = load_dataset(source, split="test", revision={"a" * 40!r})
        elif source == "made/unpinned":
            SOURCES[source] = load_dataset(source, split="test")
        elif source == "cais/hle":
            SOURCES[source] = load_dataset(source, split="test", revision={"c" * 40!r})
        elif source.startswith("https://"):
            SOURCES[source] = load_dataset("json", data_files={{"test": [source]}}, split="test")
        else:
            return row["turns"]
    return [SOURCES[source].to_pandas().set_index("id")["text"][row["src_id"]]]


def resolve(row):
    if not row["turns"][0].startswith(PLACEHOLDER):
        return row
    return {{**row, "turns": text(row)}}


parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--output_dir", type=Path)
args = parser.parse_args()
if wait := os.environ.get("FAKE_SCRIPT_WAIT_S"):
    with open(os.environ["FAKE_SCRIPT_STARTED"], "a") as started:
        started.write(f"{{os.getpid()}}\\n")
    (args.output_dir / f"{{args.config}}.jsonl").write_text('{{"half": ')
    time.sleep(float(wait))
if told := os.environ.get("FAKE_SCRIPT_SAYS"):
    raise SystemExit(told)
rows = load_dataset("nvidia/SPEED-Bench", args.config, split="test").map(resolve)
rows = rows.map(
    lambda row: {{"messages": [{{"role": "user", "content": turn}} for turn in row["turns"]]}},
    remove_columns=["turns"],
)
rows.to_json(args.output_dir / f"{{args.config}}.jsonl")
"""
URL_SOURCE = f"https://huggingface.co/datasets/made/up/resolve/{'a' * 40}/extra.jsonl"


def made_up_rows() -> list[dict[str, Any]]:
    """Two categories of 80; some coding rows point elsewhere, a math row to a gated source."""
    rows = [
        {
            "question_id": f"{category}-{i}",
            "category": category,
            "turns": [f"{category} question {i}\u2028", "and then?"],
            "source": "inline",
            "src_id": str(i),
        }
        for category in CATEGORIES
        for i in range(EACH)
    ]
    template = f"{PLACEHOLDER}\n\n{{question}}"
    for row, source in ((0, "made/up"), (1, "made/unpinned"), (2, URL_SOURCE), (EACH, "cais/hle")):
        rows[row] |= {"turns": [template], "source": source, "src_id": f"t{row}"}
    return rows


class Upstream:
    """The folder that the hub serves, and the same as a SPEEDBENCH_SOURCE_DIR."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = SCRIPT.encode()
        (folder / "raw").mkdir(parents=True)
        (folder / "raw" / "prepare.py").write_bytes(self.script)
        (folder / "prepare.py").write_bytes(self.script)
        for name in ("made/up", "made/unpinned", "cais/hle"):
            texts = [{"id": f"t{i}", "text": f"{name} text {i}"} for i in (0, 1, 2, EACH)]
            self.write(name, {"default": ("test.jsonl", texts)})
        (folder / "made/up/extra.jsonl").write_text('{"id": "t2", "text": "from a URL"}\n')
        self.rows(made_up_rows())

    def rows(self, rows: list[dict[str, Any]]) -> None:
        self.write(speedbench_source.DATASET, {"qualitative": ("qualitative/test.jsonl", rows)})

    def write(self, name: str, configs: dict[str, tuple[str, list[dict[str, Any]]]]) -> None:
        folder = self.folder / name
        card = ["---", "configs:"]
        for config, (file, rows) in configs.items():
            card += [f"- config_name: {config}", f"  data_files: [{{split: test, path: {file}}}]"]
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
            notes = folder / ".cache/huggingface/download" / f"{file}.metadata"
            notes.parent.mkdir(parents=True, exist_ok=True)
            notes.write_text(f"{REVISIONS[name]}\netag\n0.0\n")
        (folder / "README.md").write_text("\n".join([*card, "---", ""]))

    def pins(self) -> dict[str, Any]:
        """Values of speedbench_source's constants that describe this instead."""
        data = self.folder / speedbench_source.DATASET / "qualitative/test.jsonl"
        return {
            "SCRIPT_SHA256": hashlib.sha256(self.script).hexdigest(),
            "DATA_SHA256": {"qualitative": hashlib.sha256(data.read_bytes()).hexdigest()},
        }
