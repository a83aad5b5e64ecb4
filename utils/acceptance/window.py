"""The window: an idle server, scraped before and after the workload; deltas per series."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from utils import records
from utils.acceptance.engines import Engine
from utils.acceptance.exposition import Samples, Series, parse, select
from utils.errors import NotMeasured

SCRAPE_TIMEOUT_S = 10.0
SCRAPE_TRIES = 3
SETTLE_INTERVAL_S = 0.25


@dataclass(frozen=True)
class Scrape:
    """One reading of all metrics endpoints."""

    time: str
    samples: Samples

    def as_json(self) -> dict[str, Any]:
        rows = [
            {"endpoint": s.endpoint, "name": s.name, "labels": dict(s.labels), "value": value}
            for s, value in sorted(self.samples.items())
        ]
        return {"time": self.time, "samples": rows}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Scrape:
        samples = {
            Series(row["endpoint"], row["name"], tuple(sorted(row["labels"].items()))): row["value"]
            for row in data["samples"]
        }
        return cls(data["time"], samples)


def local_session() -> requests.Session:
    """A session that ignores proxies: what we measure is on this machine or in this cluster."""
    session = requests.Session()
    session.trust_env = False
    return session


def scrape(session: requests.Session, urls: Sequence[str], engine: Engine) -> Scrape:
    """Read every endpoint once; keep the samples that the engine's adapter names.

    Raises:
        NotMeasured: an endpoint can't be read, or lacks one of the counters, or a value that we
            need isn't finite. Never a default value.
    """
    samples: Samples = {}
    wanted = engine.counters | engine.busy | engine.restart_witnesses
    for url in urls:
        response = _get(session, url)
        page = parse(response.text, url, response.headers.get("content-type", ""))
        missing = engine.counters - {series.name for series in page}
        if missing:
            raise NotMeasured(_missing(url, missing, engine))
        samples.update(select(page, wanted))
    for series, value in samples.items():
        if not math.isfinite(value):
            raise NotMeasured(f"{series} is {value}: a counter that isn't finite measures nothing")
    return Scrape(records.utc_now(), samples)


def _get(session: requests.Session, url: str) -> requests.Response:
    for attempt in range(SCRAPE_TRIES):
        try:
            response = session.get(url, timeout=SCRAPE_TIMEOUT_S)
            if response.status_code == 200:
                return response
            problem = f"status {response.status_code}"
        except requests.RequestException as error:
            problem = str(error)
        if attempt + 1 < SCRAPE_TRIES:
            time.sleep(SETTLE_INTERVAL_S)
    raise NotMeasured(f"scrape of {url} failed {SCRAPE_TRIES} times: {problem}")


def _missing(url: str, missing: frozenset[str], engine: Engine) -> str:
    if missing == engine.counters:
        return f"{url} has no metrics of {engine.name}: {engine.how_to_enable}"
    names = ", ".join(sorted(missing))
    return f"{url} lacks {names}: does this server speculate at all? {engine.how_to_enable}"


def settled(
    session: requests.Session,
    urls: Sequence[str],
    engine: Engine,
    deadline_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Scrape:
    """The first scrape that shows an idle server and the same counters as the one before it.

    Raises:
        NotMeasured: still busy, or still counting, after deadline_s seconds.
    """
    end = time.monotonic() + deadline_s
    last = scrape(session, urls, engine)
    while True:
        sleep(SETTLE_INTERVAL_S)
        now = scrape(session, urls, engine)
        busy = {str(s): v for s, v in select(now.samples, engine.busy).items() if v}
        if not busy and now.samples == last.samples:
            return now
        if time.monotonic() > end:
            why = f"busy: {busy}" if busy else "counters still move"
            raise NotMeasured(
                f"the server did not come to rest within {deadline_s:g} s ({why}); "
                "is somebody else using it?"
            )
        last = now


def deltas(before: Scrape, after: Scrape, engine: Engine) -> Samples:
    """Growth of every counter series between two scrapes of one unchanged set of processes.

    Raises:
        NotMeasured: a series came, went, fell or isn't finite, or a process started anew.
    """
    fixed = engine.counters | engine.restart_witnesses
    first, last = select(before.samples, fixed), select(after.samples, fixed)
    for series in sorted(first.keys() ^ last.keys()):
        what = "disappeared" if series in first else "appeared"
        raise NotMeasured(f"{series} {what} during the window: the set of engines changed")
    growth: Samples = {}
    for series, start in sorted(first.items()):
        end = last[series]
        if not (math.isfinite(start) and math.isfinite(end)):
            raise NotMeasured(f"{series} is not finite: {start} → {end}")
        if series.name in engine.restart_witnesses:
            if end != start:
                raise NotMeasured(f"{series} changed from {start:f} to {end:f}: a restart")
        elif end < start:
            raise NotMeasured(f"{series} fell from {start:g} to {end:g}: the server restarted")
        else:
            growth[series] = end - start
    return growth
