"""Wait until our own engine serves the wanted model and generates; then say how long it took."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from utils import errors, processes, records
from utils.acceptance import engines, preflight
from utils.acceptance.window import local_session
from utils.errors import NotMeasured, UsageError
from utils.progress import Progress, last_line
from utils.recipes.names import version_key
from utils.recipes.surroundings import SERVER_LOG
from utils.serving.supervise import descendants

POLL_S = 0.5
CONTROL_TIMEOUT_S = 5.0
GENERATION_TIMEOUT_S = 120.0
# While loading: not routed yet, not allowed yet, too many, any server error.
NOT_YET = {404, 408, 425, 429}
_PROMPTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Say hello."}]}),
    "completions": ("/v1/completions", {"prompt": "Hello"}),
}


class _NotYet(Exception):
    """Why the server isn't ready now; asking again may help."""


@dataclass(frozen=True)
class Target:
    """The server that must become ready: where, what, whose child; None: on other nodes."""

    base_url: str
    model: str
    endpoint: str
    server_pid: int | None


def wait(target: Target, timeout_s: float, log: Path | None = None) -> float:
    """Seconds until the target was ready; log: the server's, of which the last line is shown.

    Raises:
        NotMeasured: someone else answers, another model is served, the request is refused for
            good, or the deadline passed.
    """
    started = time.monotonic()
    with requests.Session() as session, Progress("server load", limit_s=timeout_s) as shown:
        session.trust_env = False  # a proxy of the environment must not see 127.0.0.1
        while True:
            left = started + timeout_s - time.monotonic()
            try:
                check(session, target, max(left, POLL_S))
                return time.monotonic() - started
            except _NotYet as reason:
                why = str(reason)
            if time.monotonic() - started >= timeout_s:
                raise NotMeasured(f"the server was not ready within {timeout_s:g} s: {why}")
            shown.show((log and last_line(log)) or why)
            time.sleep(POLL_S)


def check(session: requests.Session, target: Target, left_s: float) -> None:
    """One look: the listener, the model list, one real generation."""
    if target.server_pid is not None:
        _check_identity(target, target.server_pid)
    answer = _ask(session, "GET", f"{target.base_url}/v1/models", min(left_s, CONTROL_TIMEOUT_S))
    served = [str(row.get("id")) for row in answer.get("data") or []]
    if not served:
        raise _NotYet("no model is listed")
    if set(served) != {target.model}:
        raise NotMeasured(f"the server offers {', '.join(served)}, want {target.model} alone")
    path, prompt = _PROMPTS[target.endpoint]
    body = {"model": target.model, "max_tokens": 8, "temperature": 0, **prompt}
    timeout_s = min(left_s, GENERATION_TIMEOUT_S)
    answer = _ask(session, "POST", f"{target.base_url}{path}", timeout_s, body)
    if not (answer.get("usage") or {}).get("completion_tokens"):
        raise _NotYet("the generation came back without a token")


def _check_identity(target: Target, server_pid: int) -> None:
    if not processes.alive(server_pid):
        raise NotMeasured(f"the engine (pid {server_pid}) has ended; see its log")
    port = urlsplit(target.base_url).port or 80
    family = descendants(server_pid) | {server_pid}
    sockets = processes.listeners(port)
    if not sockets:
        raise _NotYet(f"nobody listens on port {port}")
    for found in sockets:
        if not family.intersection(found.pids):
            raise NotMeasured(f"port {port} is answered by {found}, which is not our engine")


def _ask(
    session: requests.Session,
    method: str,
    url: str,
    timeout_s: float,
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    try:
        response = session.request(method, url, json=body, timeout=timeout_s)
    except requests.RequestException as error:
        raise _NotYet(f"{method} {url}: {type(error).__name__}") from error
    if response.status_code != 200:
        text = f"{method} {url}: {response.status_code} {' '.join(response.text.split())[:300]}"
        if 400 <= response.status_code < 500 and response.status_code not in NOT_YET:
            raise NotMeasured(f"the server refuses the request for good: {text}")
        raise _NotYet(text)
    try:
        answer = records.parse_json(response.text)
    except ValueError as error:
        raise _NotYet(f"{method} {url}: not JSON") from error
    if not isinstance(answer, dict):
        raise _NotYet(f"{method} {url}: not a JSON object")
    return answer


def check_version(wanted: str, running: str | None) -> None:
    """Options were spelled for the wanted version: only that one may run.

    Raises:
        UsageError: the server says that it is another one.
    """
    try:
        same = version_key(wanted) == version_key(running or "")
    except UsageError:
        text = f"the server's version is {running!r}: not compared with ENGINE_VERSION {wanted}"
        print(text, file=sys.stderr)
        return
    if not same:
        raise UsageError(
            f"ENGINE_VERSION is {wanted}, the server says {running}: its options were spelled for"
            " another engine; correct ENGINE_VERSION, or the image"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="utils.serving.ready", description=__doc__)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True, help="served name")
    parser.add_argument("--timeout-s", type=float, required=True, help="deadline of it all")
    parser.add_argument("--server-pid", type=int, required=True, help="the engine's ancestor")
    parser.add_argument("--engine", default="openai", help="adapter, finds out its version")
    parser.add_argument("--record", type=Path, required=True, help="server_command.json")
    options = parser.parse_args(argv)
    target = Target(options.base_url, options.model, "chat", options.server_pid)
    ready_s = wait(target, options.timeout_s, options.record.with_name(SERVER_LOG))
    print(f"ready after {ready_s:.1f} s: {target.model} at {target.base_url}", file=sys.stderr)
    engine = engines.load(options.engine)
    running = preflight.Target(options.base_url, (), engine, options.model)
    version = preflight.version(local_session(), running)
    found = {"ready_s": round(ready_s, 3), "engine_version": version}
    record = records.read_json(options.record) | found
    records.write_json(options.record, record, "server_command")
    if wanted := os.environ.get("ENGINE_VERSION"):
        check_version(wanted, version)
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
