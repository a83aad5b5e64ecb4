"""A Hugging Face hub for data sets, and a host of raw files, on 127.0.0.1."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class Hub:
    """Serves folder/<owner>/<name>/ at `commits[name]`, and folder/raw/ as it is.

    newest: commit of a default branch that has moved on. denied: data sets by the status that
    asking for them gets. truncated: names of files of which only the first half comes.
    """

    def __init__(self, folder: Path, commits: dict[str, str]) -> None:
        self.folder = folder
        self.commits = commits
        self.newest: dict[str, str] = {}
        self.denied: dict[str, int] = {}
        self.truncated: set[str] = set()
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[Hub]:
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self._route([part for part in urlsplit(self.path).path.split("/") if part])

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self._route([part for part in urlsplit(self.path).path.split("/") if part], body)

    def _route(self, steps: list[str], body: str = "") -> None:
        self.hub.asked.append(f"{self.command} {self.path}")
        self.hub.tokens.add(self.headers.get("Authorization"))
        match steps:
            case ["raw", *rest]:
                self._raw("/".join(rest))
            case ["api", "datasets", owner, name, *rest]:
                self._api(f"{owner}/{name}", rest, body)
            case ["datasets", owner, name, "resolve", revision, *rest]:
                self._file(f"{owner}/{name}", revision, "/".join(rest))
            case _:
                self._say(404, b"", "EntryNotFound")

    def _api(self, name: str, rest: list[str], body: str) -> None:
        if not self._allowed(name):
            return
        known = {self.hub.commits[name], "main"}
        match rest:
            case ["auth-check"]:
                self._json({})
            case [] | ["revision", _] if not rest or rest[1] in known:
                names = [{"rfilename": file["path"]} for file in self._files(name)]
                commit = self.hub.commits[name]
                commit = commit if rest else self.hub.newest.get(name, commit)
                self._json({"id": name, "sha": commit, "siblings": names})
            case ["tree", revision, *under] if revision in known:
                start = "/".join(under)
                self._json([f for f in self._files(name) if f["path"].startswith(start)])
            case ["paths-info", revision] if revision in known:
                wanted = json.loads(body)["paths"]
                found = [file for file in self._files(name) if file["path"] in wanted]
                self._json(found + self._folders(name, wanted))
            case _:
                self._say(404, b"", "RevisionNotFound")

    def _allowed(self, name: str) -> bool:
        if status := self.hub.denied.get(name):
            self._say(status, b"", "GatedRepo")
        elif name not in self.hub.commits:
            self._say(404, b"", "RepoNotFound")
        else:
            return True
        return False

    def _files(self, name: str) -> list[dict[str, Any]]:
        folder = self.hub.folder / name
        return [
            {
                "type": "file",
                "path": str(path.relative_to(folder)),
                "size": path.stat().st_size,
                "oid": hashlib.sha1(path.read_bytes()).hexdigest(),
            }
            for path in sorted(folder.rglob("*"))
            if path.is_file() and ".cache" not in path.parts
        ]

    def _folders(self, name: str, wanted: list[str]) -> list[dict[str, Any]]:
        folder = self.hub.folder / name
        found = [path.strip("/") for path in wanted if (folder / path.strip("/")).is_dir()]
        return [{"type": "directory", "path": path, "oid": "0" * 40} for path in found]

    def _file(self, name: str, revision: str, path: str) -> None:
        file = self.hub.folder / name / path
        if not self._allowed(name):
            return
        if revision not in (self.hub.commits[name], "main") or not file.is_file():
            self._say(404, b"", "EntryNotFound")
            return
        data = file.read_bytes()
        oid = hashlib.sha1(data).hexdigest()
        self._say(200, data, commit=self.hub.commits[name], etag=oid)

    def _raw(self, path: str) -> None:
        self._say(200, (self.hub.folder / "raw" / path).read_bytes())

    def _json(self, value: Any) -> None:
        self._say(200, json.dumps(value).encode())

    def _say(
        self, status: int, data: bytes, error: str = "", commit: str = "", etag: str = ""
    ) -> None:
        self.send_response(status)
        headers = {"X-Error-Code": error, "X-Repo-Commit": commit, "ETag": etag and f'"{etag}"'}
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.path.rsplit("/")[-1] in self.hub.truncated:
            data = data[: len(data) // 2]
            self.close_connection = True
        self.wfile.write(data)
