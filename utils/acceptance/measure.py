"""One AL measurement: preflight, window, workload; then figures and checks from what was seen.

observe() talks to the server and keeps what it saw; derive() is pure and works on a stored
record as well, which is how a validator recomputes a verdict without believing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests

from utils.acceptance import checks, client, estimate, window
from utils.acceptance.checks import Asked, Check
from utils.acceptance.client import Answer, Load, Prompt
from utils.acceptance.engines import Counts, Engine, Speculation
from utils.acceptance.estimate import Estimate
from utils.acceptance.exposition import select
from utils.errors import NotMeasured
from utils.serving import listener

SETTLE_DEADLINE_S = 60.0
GENERATION_DEADLINE_S = 600.0


@dataclass
class Observation:
    """What was seen, filled in as the measurement goes; a failed one keeps what it has."""

    engine_version: str | None = None
    argv: tuple[str, ...] | None = None
    speculation: Speculation = field(default_factory=Speculation)
    before: window.Scrape | None = None
    after: window.Scrape | None = None
    answers: list[Answer] = field(default_factory=list)


@dataclass(frozen=True)
class Target:
    """The server to measure. ranks: engines (data-parallel ranks) expected on its metrics."""

    base_url: str
    metrics_urls: tuple[str, ...]
    engine: Engine
    model: str
    ranks: int = 1
    server_pid: int | None = None


@dataclass(frozen=True)
class Derived:
    """Figures and checks that follow from an observation."""

    counts: Counts
    estimate: Estimate
    checks: tuple[Check, ...]

    @property
    def broken(self) -> list[Check]:
        return [check for check in self.checks if check.broken]


def observe(
    target: Target, asked: Asked, load: Load, prompts: Sequence[Prompt], seen: Observation
) -> None:
    """Measure a live server; fills `seen` on the way.

    Raises:
        NotMeasured: the server isn't the one asked for, or the window is invalid.
    """
    session = window.local_session()
    _preflight(session, target, asked, seen)
    _one_generation(session, load)
    urls, engine = target.metrics_urls, target.engine
    seen.before = window.settled(session, urls, engine, SETTLE_DEADLINE_S)
    seen.answers = client.run(load, prompts, engine)
    seen.after = window.settled(session, urls, engine, SETTLE_DEADLINE_S)


def _preflight(session: requests.Session, target: Target, asked: Asked, seen: Observation) -> None:
    """Refuse a server that isn't what the plan says, before any GPU time is spent on it."""
    _process(target, seen)
    offered = _models(session, target.base_url)
    if target.model not in offered:
        raise NotMeasured(
            f"{target.base_url} serves {', '.join(offered) or 'nothing'}, not {target.model}"
        )
    seen.engine_version = _version(session, target.base_url)
    forced = [*seen.speculation.not_real]
    if forced:
        raise NotMeasured(f"acceptance is not real on this server ({', '.join(forced)})")
    scrape = window.scrape(session, target.metrics_urls, target.engine)
    ranks = {
        (series.endpoint, series.label(target.engine.rank_label))
        for series in select(scrape.samples, target.engine.counters)
    }
    if len(ranks) != target.ranks:
        raise NotMeasured(f"{len(ranks)} engines show metrics, {target.ranks} are expected")
    _agree("N", target.engine.draft_length(scrape.samples), asked.draft_length)
    _agree("N on its command line", seen.speculation.num_speculative_tokens, asked.draft_length)
    _agree("method", seen.speculation.method, asked.method)


def _agree(what: str, server: object, asked: object) -> None:
    if server is not None and asked is not None and server != asked:
        raise NotMeasured(f"{what} of the server is {server}, asked for {asked}")


def _process(target: Target, seen: Observation) -> None:
    """Command line and environment of a server on this machine."""
    if target.server_pid is not None and not listener.alive(target.server_pid):
        raise NotMeasured(f"the engine (pid {target.server_pid}) is gone; see its log")
    where = urlsplit(target.base_url)
    if where.hostname not in ("127.0.0.1", "localhost", "::1") or where.port is None:
        return
    process = listener.find(where.port)
    if process is None:
        return
    seen.argv = process.argv
    seen.speculation = target.engine.speculation(process.argv)
    forced = sorted(target.engine.forcing_variables & process.environ.keys())
    if forced:
        raise NotMeasured(f"acceptance is not real: {process} runs with {', '.join(forced)} set")


def _models(session: requests.Session, base_url: str) -> list[str]:
    data = _json(session, f"{base_url}/v1/models")
    return [row.get("id", "") for row in data.get("data", [])]


def _version(session: requests.Session, base_url: str) -> str | None:
    try:
        version = _json(session, f"{base_url}/version").get("version")
    except NotMeasured:
        return None
    return version if isinstance(version, str) else None


def _json(session: requests.Session, url: str) -> dict[str, Any]:
    try:
        response = session.get(url, timeout=window.SCRAPE_TIMEOUT_S)
        response.raise_for_status()
        data = response.json()
    except (requests.RequestException, ValueError) as error:
        raise NotMeasured(f"{url} did not answer: {error}") from error
    if not isinstance(data, dict):
        raise NotMeasured(f"{url} answered {str(data)[:60]!r}, not an object")
    return data


def _one_generation(session: requests.Session, load: Load) -> None:
    """Prove that generation works, with the very fields that the workload sends."""
    body = {
        "model": load.model,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 8,
        **load.sampling,
        "chat_template_kwargs": dict(load.chat_template_kwargs),
    }
    url = f"{load.base_url}/v1/chat/completions"
    try:
        response = session.post(url, json=body, timeout=GENERATION_DEADLINE_S)
    except requests.RequestException as error:
        raise NotMeasured(f"one generation at {url} failed: {error}") from error
    if response.status_code != 200:
        raise NotMeasured(
            f"one generation at {url} got status {response.status_code}: {response.text[:200]}"
        )


def derive(
    engine: Engine,
    asked: Asked,
    before: window.Scrape,
    after: window.Scrape,
    answers: Sequence[Answer],
) -> Derived:
    """Figures and checks of one window.

    Raises:
        NotMeasured: the scrapes don't make a window, or no step was counted in it.
    """
    counts = engine.counts(window.deltas(before, after, engine))
    found = tuple(checks.run(asked, counts, answers))
    figures = estimate.estimate(
        accepted=counts.accepted,
        steps=counts.steps,
        drafted=counts.drafted,
        per_position=counts.per_position,
        rows=request_rows(asked, answers),
    )
    return Derived(counts, figures, found)


def request_rows(asked: Asked, answers: Sequence[Answer]) -> list[tuple[int, int]]:
    """(accepted, steps) per request: its own figures, or chunks if the method always drafts."""
    if all(answer.spec for answer in answers):
        return [(a.spec.accepted, a.spec.steps) for a in answers if a.spec]
    if asked.method is None or asked.method in checks.SOMETIMES_DRAFTS:
        return []
    return [((a.completion_tokens or 0) - a.chunks, a.chunks - 1) for a in answers if a.chunks > 1]
