"""Wait until our own engine serves the wanted model and generates; then say how long it took."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from utils import errors, records
from utils.errors import NotMeasured
from utils.serving import listeners
from utils.serving.supervise import descendants

POLL_S = 0.5
PROGRESS_S = 30.0
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
    """The server that must become ready: where, what, and whose child it must be."""

    base_url: str
    model: str
    endpoint: str
    server_pid: int


def wait(target: Target, timeout_s: float) -> float:
    """Seconds until the target was ready.

    Raises:
        NotMeasured: someone else answers, another model is served, the request is refused for
            good, or the deadline passed.
    """
    started = time.monotonic()
    said = started
    with requests.Session() as session:
        session.trust_env = False  # a proxy of the environment must not see 127.0.0.1
        while True:
            left = started + timeout_s - time.monotonic()
            try:
                check(session, target, max(left, POLL_S))
                return time.monotonic() - started
            except _NotYet as reason:
                why = str(reason)
            now = time.monotonic()
            if now - started >= timeout_s:
                raise NotMeasured(f"the server was not ready within {timeout_s:g} s: {why}")
            if now - said >= PROGRESS_S:
                print(f"not ready after {now - started:.0f} s: {why}", file=sys.stderr, flush=True)
                said = now
            time.sleep(POLL_S)


def check(session: requests.Session, target: Target, left_s: float) -> None:
    """One look: the listener, the model list, one real generation."""
    _check_identity(target)
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


def _check_identity(target: Target) -> None:
    if not listeners.alive(target.server_pid):
        raise NotMeasured(f"the engine (pid {target.server_pid}) has ended; see its log")
    port = urlsplit(target.base_url).port or 80
    family = descendants(target.server_pid) | {target.server_pid}
    sockets = listeners.listeners(port)
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="utils.serving.ready", description=__doc__)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True, help="served name")
    parser.add_argument("--timeout-s", type=float, required=True, help="deadline of it all")
    parser.add_argument("--server-pid", type=int, required=True, help="the engine's ancestor")
    parser.add_argument("--endpoint", choices=sorted(_PROMPTS), default="chat")
    parser.add_argument("--record", type=Path, help="server_command.json, gets ready_s")
    options = parser.parse_args(argv)
    target = Target(options.base_url, options.model, options.endpoint, options.server_pid)
    ready_s = wait(target, options.timeout_s)
    print(f"ready after {ready_s:.1f} s: {target.model} at {target.base_url}", file=sys.stderr)
    if options.record:
        record = records.read_json(options.record) | {"ready_s": round(ready_s, 3)}
        records.write_json(options.record, record, "server_command")
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
