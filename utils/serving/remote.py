"""A server on other nodes: wait until it answers with all its workers, then watch it.

`wait` is a client like any other. `watch` lives as long as the server does, so that a recipe
notices the end of a server whose processes it can't see.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import requests

from utils import errors
from utils.errors import NotMeasured
from utils.serving import ready

POLL_S = 2.0
MOST_MISSES = 3  # in a row; a busy front end may be late once
TIMEOUT_S = 10.0


def wait(base_url: str, model: str, metrics_urls: Sequence[str], timeout_s: float) -> float:
    """Seconds until the front end generates and every worker shows its metrics.

    Raises:
        NotMeasured: as `ready.wait`, or a worker is missing at the deadline.
    """
    started = time.monotonic()
    ready.wait(ready.Target(base_url, model, "chat", None), timeout_s)
    while missing := absent(metrics_urls):
        if time.monotonic() - started >= timeout_s:
            raise NotMeasured(f"no metrics within {timeout_s:g} s: {'; '.join(missing)}")
        time.sleep(POLL_S)
    return time.monotonic() - started


def absent(urls: Sequence[str]) -> list[str]:
    """Those that don't answer, with the reason."""
    found = []
    with requests.Session() as session:
        session.trust_env = False  # a proxy of the environment must not stand between
        for url in urls:
            try:
                status = session.get(url, timeout=TIMEOUT_S).status_code
            except requests.RequestException as error:
                found.append(f"{url}: {type(error).__name__}")
            else:
                if status != requests.codes.ok:
                    found.append(f"{url}: {status}")
    return found


def watch(urls: Sequence[str], poll_s: float = POLL_S) -> list[str]:
    """Returns when some of the URLs have been silent too often in a row, with the reasons."""
    misses = 0
    while True:
        missing = absent(urls)
        misses = misses + 1 if missing else 0
        if misses >= MOST_MISSES:
            return missing
        time.sleep(poll_s)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="utils.serving.remote", description=__doc__)
    parser.add_argument("what", choices=("wait", "watch"))
    parser.add_argument("--base-url", required=True, help="of the front end")
    parser.add_argument("--model", required=True, help="served name")
    parser.add_argument("--metrics-url", action="append", default=[], help="of each worker")
    parser.add_argument("--timeout-s", type=float, default=1800.0, help="of `wait`")
    args = parser.parse_args(argv)
    if args.what == "wait":
        ready_s = wait(args.base_url, args.model, args.metrics_url, args.timeout_s)
        print(f"ready after {ready_s:.1f} s: {args.model} at {args.base_url}", file=sys.stderr)
        return errors.PASS
    gone = watch([f"{args.base_url}/v1/models", *args.metrics_url])
    print(f"the server is gone: {'; '.join(gone)}", flush=True)
    return errors.NOT_MEASURED


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
