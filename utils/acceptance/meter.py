"""Reading metrics endpoints: each once a scrape, in one way, until the server is at rest."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from utils import errors, processes, records
from utils.acceptance.engines import Engine, Source
from utils.acceptance.exposition import Samples, Series, select
from utils.acceptance.window import PROCESS, Scrape
from utils.errors import NotMeasured

if TYPE_CHECKING:
    import requests

SCRAPE_TIMEOUT_S = 10.0
SCRAPE_TRIES = 3
SETTLE_INTERVAL_S = 0.1
LOCAL = ("127.0.0.1", "localhost", "::1")
Enough = Callable[[Samples], bool]


@dataclass
class Meter:
    """Reads all metrics endpoints of one server, in one way; the only reader while it lives."""

    session: requests.Session
    urls: Sequence[str]
    engine: Engine
    source: Source
    _pages: dict[str, Samples] = field(default_factory=dict)
    _pids: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for url in self.urls:
            where = urlsplit(url)
            if where.hostname in LOCAL and where.port and (pid := processes.find(where.port)):
                self._pids[url] = pid

    def scrape(self) -> Scrape:
        """Read every endpoint once; keep the samples that the adapter names.

        Raises:
            NotMeasured: an endpoint can't be read, or lacks one of the counters, or a value that
                we need isn't finite. Never a default value.
        """
        samples: Samples = {}
        with self._lock:
            for url in self.urls:
                page = self._read(url)
                missing = self.source.shown - {series.name for series in page}
                if missing:
                    raise NotMeasured(
                        _missing(url, missing, self.engine, self.source), "no_metrics"
                    )
                samples.update(select(page, self.source.kept))
                if url in self._pids and (ticks := processes.started(self._pids[url])):
                    samples[Series(url, PROCESS, ())] = float(ticks)
        for series, value in samples.items():
            if not math.isfinite(value):
                raise NotMeasured(
                    f"{series} is {value}: a counter that isn't finite measures nothing"
                )
        return Scrape(records.utc_now(), samples)

    def _read(self, url: str) -> Samples:
        response = get(self.session, url, f"; {self.engine.how_to_enable}")
        content_type = response.headers.get("content-type", "")
        before = self._pages.get(url, {})
        with errors.reading(url):
            self._pages[url] = self.source.read(response.text, url, content_type, before)
        return self._pages[url]

    def settled(
        self,
        deadline_s: float,
        enough: Enough = lambda _: True,
        patience_s: float = 0.0,
    ) -> Scrape:
        """The first scrape that shows an idle server and the same counters as the one before it.

        A page that is computed at intervals must be computed anew first. Stat loggers may lag
        behind the last answer: for patience_s seconds also wait until there is `enough`.

        Raises:
            NotMeasured: still busy, or still counting, after deadline_s seconds.
        """
        began = time.monotonic()
        first = last = self.scrape()
        while True:
            time.sleep(SETTLE_INTERVAL_S)
            now = self.scrape()
            why = self._restless(first, last, now)
            waited = time.monotonic() - began
            if not why and (waited > patience_s or enough(now.samples)):
                return now
            if why and waited > deadline_s:
                raise NotMeasured(
                    f"the server did not come to rest within {deadline_s:g} s ({why}); "
                    "is somebody else using it?"
                )
            last = now

    def _restless(self, first: Scrape, last: Scrape, now: Scrape) -> str:
        busy = {str(s): v for s, v in select(now.samples, self.source.busy).items() if v}
        if busy:
            return f"busy: {busy}"
        counters = self.source.counters
        if select(now.samples, counters) != select(last.samples, counters):
            return "counters still move"
        # The first page may be from before the last answer; one computed after it can't be.
        snapshot = [self.source.refreshed or ""]
        if self.source.refreshed and select(now.samples, snapshot) == select(
            first.samples, snapshot
        ):
            return f"{self.source.refreshed} stands still"
        return ""

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Keep reading a page that can be read once only, while something else runs."""
        if self.source.poll_s is None:
            yield
            return
        stop, failures = threading.Event(), []

        def poll() -> None:
            while not stop.wait(self.source.poll_s):
                try:
                    self.scrape()
                except NotMeasured as error:
                    failures.append(error)
                    return

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]


def get(session: requests.Session, url: str, remedy: str = "") -> requests.Response:
    """GET with a bounded number of tries; an answer of the 4xx kind is final.

    Raises:
        NotMeasured: no answer with status 200.
    """
    import requests

    problem = ""
    for attempt in range(SCRAPE_TRIES):
        try:
            response = session.get(url, timeout=SCRAPE_TIMEOUT_S)
            if response.history and _host(response.url) != _host(url):
                text = (
                    f"{url} leads to {response.url}: name that with --metrics-url, if it is meant"
                )
                raise NotMeasured(text, "scrape_failed")
            if response.status_code == 200:
                return response
            problem = f"status {response.status_code}"
            if 400 <= response.status_code < 500 and response.status_code != 429:
                raise NotMeasured(f"scrape of {url} got {problem}{remedy}", "scrape_failed")
        except requests.RequestException as error:
            problem = str(error)
        if attempt + 1 < SCRAPE_TRIES:
            time.sleep(SETTLE_INTERVAL_S)
    raise NotMeasured(f"scrape of {url} failed {SCRAPE_TRIES} times: {problem}", "scrape_failed")


def _host(url: str) -> tuple[str | None, int | None]:
    where = urlsplit(url)
    return where.hostname, where.port


def _missing(url: str, missing: frozenset[str], engine: Engine, source: Source) -> str:
    if missing == source.shown:
        return f"{url} has no {source.label} of {engine.name}: {engine.how_to_enable}"
    names = ", ".join(sorted(missing))
    return f"{url} lacks {names}: does this server speculate at all? {engine.how_to_enable}"
