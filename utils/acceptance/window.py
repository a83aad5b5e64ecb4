"""The window: an idle server, scraped before and after the workload; deltas per series."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from utils.acceptance.engines import Source
from utils.acceptance.exposition import Samples, Series, select
from utils.errors import NotMeasured

if TYPE_CHECKING:
    import requests

# Start of the process that answers, by the kernel: a witness where the page has none.
PROCESS = "process_start_ticks"


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
    import requests  # here, because judging a stored record needs no HTTP and must start fast

    session = requests.Session()
    session.trust_env = False
    return session


def one_process(before: Scrape, after: Scrape, source: Source, endpoint: str) -> bool:
    """Whether something proves that the same process answered at both ends."""
    names = {*source.witnesses, PROCESS}
    first, last = select(before.samples, names), select(after.samples, names)
    return any(s.endpoint == endpoint and last.get(s) == value for s, value in first.items())


def proven(before: Scrape, after: Scrape, source: Source) -> bool:
    """Whether that holds of every endpoint, and there is one."""
    endpoints = {series.endpoint for series in before.samples}
    return bool(endpoints) and all(one_process(before, after, source, e) for e in endpoints)


def deltas(before: Scrape, after: Scrape, source: Source) -> Samples:
    """Growth of every counter series between two scrapes of one unchanged set of processes.

    A series that is new counts from 0, if its engine creates it when it first counts something
    and the process is proven to be the same.

    Raises:
        NotMeasured: a series came, went, fell or isn't finite, or a process started anew.
    """
    witnesses = source.witnesses | {PROCESS}
    first = select(before.samples, source.counters | witnesses)
    last = select(after.samples, source.counters | witnesses)
    for series in sorted(first.keys() ^ last.keys()):
        lazy = series.name in source.lazy and series in last
        if lazy and one_process(before, after, source, series.endpoint):
            first[series] = 0.0
            continue
        what = "disappeared" if series in first else "appeared"
        raise NotMeasured(f"{series} {what} during the window: the set of engines changed")
    grown: Samples = {}
    for series, start in sorted(first.items()):
        end = last[series]
        if not (math.isfinite(start) and math.isfinite(end)):
            raise NotMeasured(f"{series} is not finite: {start} → {end}")
        if series.name in witnesses:
            if end != start:
                raise NotMeasured(f"{series} changed from {start:f} to {end:f}: a restart")
        elif (end - start) % 1:
            raise NotMeasured(f"{series} grew from {start} to {end}: a count is a whole number")
        elif end < start:
            raise NotMeasured(f"{series} fell from {start:g} to {end:g}: the server restarted")
        elif end >= source.exact_below:
            raise NotMeasured(
                f"{series} is {end:g}: from {source.exact_below:g} on this page rounds its "
                "values; restart the server before the measurement",
                "imprecise",
            )
        else:
            grown[series] = end - start
    return grown
