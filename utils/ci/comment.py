"""A sweep's verdicts as a comment on a pull request: one, which each later sweep writes anew."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import requests

from utils import errors
from utils.errors import HarnessError, UsageError
from utils.records import Json
from utils.report.markdown import COMMENT_MARK

AUTHOR = "github-actions[bot]"  # whom a workflow's own token writes as
TIMEOUT_S = 30.0
REMEDY = {
    401: "GH_TOKEN isn't valid",
    403: "the job needs `pull-requests: write`",
    404: "there is no such pull request, or the job may not see it",
}


def post(report: Path, number: int, source: str) -> int:
    """Write comment.md of a report's folder to a pull request, in place of our earlier comment.

    Raises:
        UsageError: there is no report, or this is no step of a workflow.
        HarnessError: GitHub refuses.
    """
    try:
        text = (report / "comment.md").read_text(encoding="utf-8")
        repository, token = os.environ["GITHUB_REPOSITORY"], os.environ["GH_TOKEN"]
    except OSError as error:
        raise UsageError(f"{report} has no comment.md: make the report first ({error})") from error
    except KeyError as error:
        raise UsageError(f"{error} is not set: this is for a step of a workflow") from error
    api = f"{os.environ.get('GITHUB_API_URL', 'https://api.github.com')}/repos/{repository}/issues"
    body = {"body": f"{text}\n[Run, tables and report]({source})\n"}
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {token}"
        session.headers["Accept"] = "application/vnd.github+json"
        ours = next(_ours(session, f"{api}/{number}/comments?per_page=100"), None)
        if ours is None:
            written = _ask(session, "POST", f"{api}/{number}/comments", body).json()
        else:
            written = _ask(session, "PATCH", f"{api}/comments/{ours}", body).json()
    print(f"comment: {written['html_url']}", flush=True)
    return errors.PASS


def _ours(session: requests.Session, url: str | None) -> Iterator[int]:
    """Ids of comments that we wrote; whoever else begins with the mark keeps his."""
    while url:
        page = _ask(session, "GET", url)
        for comment in page.json():
            if comment["user"]["login"] == AUTHOR and comment["body"].startswith(COMMENT_MARK):
                yield comment["id"]
        url = page.links.get("next", {}).get("url")


def _ask(
    session: requests.Session, method: str, url: str, body: Json | None = None
) -> requests.Response:
    try:
        response = session.request(method, url, json=body, timeout=TIMEOUT_S)
    except requests.RequestException as error:
        raise HarnessError(f"{method} {url}: {error}") from error
    if not response.ok:
        remedy = REMEDY.get(response.status_code, " ".join(response.text.split())[:200])
        raise HarnessError(f"{method} {url}: {response.status_code}: {remedy}")
    return response
