"""A sweep's comment on a pull request: written once, then anew, and refused with the remedy."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from utils import errors
from utils.ci import __main__ as ci
from utils.ci.comment import AUTHOR
from utils.report.markdown import COMMENT_MARK

TEXT = f"{COMMENT_MARK}\n## PASS: every check passed\n"


class GitHub:
    """Comments of pull request 7, two a page; what was written, in order."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.written: list[tuple[str, str]] = []
        self.tokens: set[str | None] = set()
        self.status = 200

    def add(self, author: str, body: str) -> int:
        number = len(self.comments) + 1
        self.comments.append({"id": number, "user": {"login": author}, "body": body})
        return number


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GitHub]:
    fake = GitHub()

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, content: Any, link: str = "") -> None:
            fake.tokens.add(self.headers["Authorization"])
            data = json.dumps(content).encode()
            self.send_response(fake.status)
            self.send_header("Content-Length", str(len(data)))
            if link:
                self.send_header("Link", f'<{link}>; rel="next"')
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            assert path == "/repos/o/r/issues/7/comments"
            page = int(query.partition("&page=")[2] or 0)
            more = len(fake.comments) > 2 * (page + 1)
            link = f"{url}{path}?per_page=100&page={page + 1}" if more else ""
            self.answer(fake.comments[2 * page : 2 * page + 2], link)

        def write(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
            fake.written.append((f"{self.command} {self.path}", body))
            self.answer({"html_url": "https://github.com/o/r/pull/7#1"})

        do_POST = do_PATCH = write  # noqa: N815 # names that the base class looks for

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("GITHUB_API_URL", url)
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("GH_TOKEN", "secret")
    (tmp_path / "comment.md").write_text(TEXT)
    yield fake
    server.shutdown()
    server.server_close()


def comment(folder: Path) -> int:
    source = "https://github.com/o/r/actions/runs/1"
    return errors.run(
        lambda: ci.main(["comment", str(folder), "--pull-request", "7", "--source", source])
    )


def test_the_first_one_is_new(github: GitHub, tmp_path: Path) -> None:
    github.add("somebody", "Looks good")
    assert comment(tmp_path) == 0
    ((request, body),) = github.written
    assert request == "POST /repos/o/r/issues/7/comments"
    assert body.startswith(TEXT)
    assert body.endswith("(https://github.com/o/r/actions/runs/1)\n")
    assert github.tokens == {"Bearer secret"}


def test_a_later_one_takes_the_place_of_ours_alone(github: GitHub, tmp_path: Path) -> None:
    github.add("somebody", f"{COMMENT_MARK} quoted")
    github.add(AUTHOR, "another bot's")
    ours = github.add(AUTHOR, f"{COMMENT_MARK}\n## FAIL")
    assert comment(tmp_path) == 0
    assert [request for request, _ in github.written] == [
        f"PATCH /repos/o/r/issues/comments/{ours}"
    ]


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(401, "GH_TOKEN"), (403, "pull-requests: write"), (404, "no such pull request"), (500, "500")],
)
def test_what_github_refuses_is_no_pass(
    github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int, remedy: str
) -> None:
    github.status = status
    assert comment(tmp_path) == 3
    assert remedy in capsys.readouterr().err
    assert github.written == []


@pytest.mark.parametrize("lacking", ["comment.md", "GH_TOKEN", "GITHUB_REPOSITORY"])
def test_what_it_needs_is_named(
    github: GitHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lacking: str,
) -> None:
    if lacking == "comment.md":
        (tmp_path / lacking).unlink()
    else:
        monkeypatch.delenv(lacking)
    assert comment(tmp_path) == 2
    assert lacking in capsys.readouterr().err
    assert github.written == []


def test_github_that_is_gone_is_an_error(
    tmp_path: Path, github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    assert comment(tmp_path) == 3
