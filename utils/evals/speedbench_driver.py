"""Run the checked SPEED-Bench script with every source at a known revision, recorded by hash.

A process of its own under `python -I`, with none of our modules, so that it runs on any Python
that has datasets, numpy, pandas and tiktoken. Prints "refused: why" and ends with 2 for what its
caller has to change; any other failure is a traceback.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import platform
import runpy
import statistics
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

REFUSED = 2
ENCODING = "o200k_base"
TOOLS = ("datasets", "huggingface-hub", "numpy", "pandas", "tiktoken")
HUB = "https://huggingface.co"


class Refused(Exception):
    """The caller has to change something."""


class Sources:
    """Stands in for load_dataset: sources pinned or taken from a folder, and written down."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.read: list[dict[str, Any]] = []
        self._datasets = module("datasets")
        self._load = self._datasets.load_dataset
        self._download = self._datasets.DownloadManager.download
        self._datasets.load_dataset = self.load_dataset
        self._datasets.DownloadManager.download = self._recording()
        pandas = module("pandas")
        self._read_json = pandas.read_json
        pandas.read_json = self.read_json
        self._datasets.disable_caching()  # of mapped rows: they are resolved anew in every run

    def _recording(self) -> Any:
        folder = f"{self.args.source_dir}/"

        def download(manager: Any, urls: Any) -> Any:
            local = self._download(manager, urls)
            for url, path in manager.downloaded_paths.items():
                self.read[-1]["files"][str(url).removeprefix(folder)] = digest(Path(path))
            return local

        return download

    def load_dataset(self, path: str, name: str | None = None, **more: Any) -> Any:
        # Prepared tables of an interrupted run are made again, so that their files are hashed.
        more.update(download_mode="reuse_cache_if_exists", cache_dir=self.args.cache)
        if path == "json":
            urls = more["data_files"]["test"]
            found = [self.file(u) for u in ([urls] if isinstance(urls, str) else urls)]
            return self._load(path, **{**more, "data_files": {"test": found}})
        target = path == self.args.dataset
        revision = self.args.revision if target else more.pop("revision", None)
        if self.args.source_dir:
            path = str(self._folder(path, revision))
        else:
            revision = revision or self._newest(path)
            more["revision"] = revision
            self._record(path, revision)
        rows = self._load(path, name, **more)
        return self._chosen(rows) if target else rows

    def read_json(self, path: str, **more: Any) -> Any:
        local = self._datasets.DownloadManager().download(self.file(path))
        return self._read_json(local, **more)

    def file(self, url: str) -> str:
        """Where to read a file from that the script names by its URL."""
        parts = urlsplit(url)
        steps = [part for part in parts.path.split("/") if part]
        # On the hub: datasets/<owner>/<name>/resolve/<revision>/<file>
        on_hub = url.startswith(f"{HUB}/datasets/") and len(steps) > 5
        name = "/".join(steps[1:3]) if on_hub else url
        revision = next(filter(is_commit, steps), None)
        if not self.args.source_dir:
            self._record(name, revision)
            return url.replace(HUB, os.environ.get("HF_ENDPOINT") or HUB, 1)
        if on_hub:
            local = self._folder(name, revision).joinpath(*steps[5:])
        else:
            self._record(name, revision)
            local = Path(self.args.source_dir, parts.netloc, *steps)
        if not local.is_file():
            raise Refused(f"SPEEDBENCH_SOURCE_DIR lacks {local}, a copy of {url}")
        return str(local)

    def _folder(self, name: str, revision: str | None) -> Path:
        """A downloaded data set; `hf download` notes the commit of each file beside it."""
        folder = Path(self.args.source_dir, name)
        notes = (folder / ".cache" / "huggingface" / "download").rglob("*.metadata")
        commits = sorted({note.read_text().split("\n", 1)[0] for note in notes})
        if len(commits) != 1 or (revision and commits != [revision]):
            found = ", ".join(commits) if commits else "nothing"
            raise Refused(
                f"{folder} holds {found}, not {name} at {revision or 'one commit'}: "
                f"hf download {name} --repo-type dataset --revision {revision or 'main'} "
                f"--local-dir {folder}"
            )
        self._record(name, commits[0])
        return folder

    def _newest(self, name: str) -> str:
        hub = module("huggingface_hub")
        return str(hub.HfApi().dataset_info(name).sha)

    def _record(self, name: str, revision: str | None) -> None:
        if self.read and (self.read[-1]["name"], self.read[-1]["revision"]) == (name, revision):
            return  # another file of it
        print(f"source: {name} at {revision or 'no pinned revision'}", flush=True)
        self.read.append({"name": name, "revision": revision, "files": {}})

    def _chosen(self, rows: Any) -> Any:
        """SPEED-Bench's own rows, before anything is fetched for them."""
        if self.args.sha256 and self.args.sha256 not in self.read[-1]["files"].values():
            raise Refused(
                f"{self.args.dataset} is not the pinned file: want sha256 {self.args.sha256}, "
                f"have {self.read[-1]['files']}"
            )
        if self.args.category:
            keep = [i for i, name in enumerate(rows["category"]) if name == self.args.category]
            rows = rows.select(keep)
        if not self.args.source_dir:
            self._require_access(set(rows["source"]))
        return rows

    def _require_access(self, sources: set[str]) -> None:
        hub = module("huggingface_hub")
        for name in self.args.gated:
            if any(name in source for source in sources):
                print(f"source: may {name} be read?", flush=True)
                hub.HfApi().auth_check(name, repo_type="dataset")


def module(name: str) -> Any:
    return importlib.import_module(name)


def is_commit(text: str) -> bool:
    return len(text) == 40 and set(text) <= set("0123456789abcdef")


def digest(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            total.update(chunk)
    return total.hexdigest()


def prepare(args: argparse.Namespace) -> None:
    sources = Sources(args)
    sys.argv = [str(args.script), "--config", args.config, "--output_dir", str(args.output_dir)]
    runpy.run_path(str(args.script), run_name="__main__")
    tools = {"python": platform.python_version(), **{t: metadata.version(t) for t in TOOLS}}
    found = {"tools": tools, "sources": sources.read}
    (args.output_dir / "sources.json").write_text(json.dumps(found), encoding="utf-8")


def count(args: argparse.Namespace) -> None:
    tiktoken = module("tiktoken")
    encoder = tiktoken.get_encoding(ENCODING)
    with args.file.open(encoding="utf-8") as lines:
        firsts = [json.loads(line)["messages"][0]["content"] for line in lines]
    sizes = [len(encoder.encode(text, disallowed_special=())) for text in firsts]
    print(
        f"tokens: {len(sizes)} first turns, {ENCODING}: min {min(sizes)}, "
        f"median {statistics.median(sizes):g}, mean {statistics.mean(sizes):.1f}, "
        f"max {max(sizes)}, total {sum(sizes)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("prepare").add_argument
    add("--script", type=Path, required=True)
    add("--dataset", required=True)
    add("--revision", required=True)
    add("--sha256", help="of the data set's file of this configuration")
    add("--config", required=True)
    add("--category", help="drop other rows before their sources are fetched")
    add("--gated", nargs="*", default=[], help="sources that need an account's consent")
    add("--source-dir", type=Path)
    add("--cache", required=True)
    add("--output-dir", type=Path, required=True)
    commands.add_parser("count").add_argument("file", type=Path)
    args = parser.parse_args()
    try:
        if lacking := [name for name in TOOLS if not find_spec(name.replace("-", "_"))]:
            raise Refused(f"{sys.executable} lacks {', '.join(lacking)}: run `make setup`")
        (prepare if args.command == "prepare" else count)(args)
    except Refused as error:
        return refuse(str(error))
    except OSError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        # `datasets` has an error of its own for this, which doesn't keep the hub's answer.
        if status not in (401, 403) and type(error).__name__ != "DatasetNotFoundError":
            raise
        return refuse(f"{f'HTTP {status}: ' if status else ''}{first_line(error)} {remedy(status)}")
    return 0


def refuse(why: str) -> int:
    print(f"refused: {why}", flush=True)
    return REFUSED


def first_line(error: OSError) -> str:
    return next(line.strip() for line in [*str(error).splitlines(), "no access"] if line.strip())


def remedy(status: int | None) -> str:
    hub = module("huggingface_hub")
    if not hub.get_token():
        return (
            "HF_TOKEN is not set: if this is gated, set one of an account that accepted its terms"
        )
    if status == 401:
        return "The hub does not accept HF_TOKEN: set a valid one"
    return "The account of HF_TOKEN may not read this: accept its terms on its page first"


if __name__ == "__main__":
    raise SystemExit(main())
