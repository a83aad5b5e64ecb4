"""What a server says of itself, compared with what was asked for, before it is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from utils import errors, processes
from utils.acceptance import client, engines, window
from utils.acceptance import meter as meters
from utils.acceptance.checks import Asked
from utils.acceptance.client import Load, Pace, Prompt
from utils.acceptance.engines import NO_METRICS, Engine, Source, Speculation
from utils.acceptance.exposition import select
from utils.acceptance.meter import LOCAL, Meter
from utils.errors import NotMeasured

if TYPE_CHECKING:
    import requests

PROBE_DEADLINE_S = 12.0
PROBE_TOKENS = 16
# Two names of one thing: the engine can't tell a trained-along head from one trained later.
SAME_METHOD = ({"mtp", "eagle"},)


@dataclass(frozen=True)
class Target:
    """The server to measure.

    metrics_urls: empty for the engine's own default; ("none",) where metrics are out of reach.
    ranks: engines (data-parallel ranks, decode workers) expected on its metrics.
    """

    base_url: str
    metrics_urls: tuple[str, ...]
    engine: Engine
    model: str
    ranks: int = 1
    server_pid: int | None = None


@dataclass
class Said:
    """What the server said; forced_lengths: ALs that its environment would force."""

    models: tuple[str, ...] = ()
    engine_version: str | None = None
    argv: tuple[str, ...] | None = None
    speculation: Speculation = field(default_factory=Speculation)
    forced_lengths: tuple[float, ...] = ()


def ask(session: requests.Session, target: Target, said: Said) -> None:
    """Process, models, version and information of the server; fills `said` on the way.

    Raises:
        NotMeasured: it is gone, serves another model, or its acceptance is not real.
    """
    _process(target, said)
    models = _json(session, target, "/v1/models")
    with errors.reading(f"{target.base_url}/v1/models"):
        said.models = tuple(str(row["id"]) for row in models.get("data") or ())
    if target.model not in said.models:
        raise NotMeasured(
            f"{target.base_url} serves {', '.join(said.models) or 'nothing'}, not {target.model}",
            "other_model",
        )
    said.engine_version = version(session, target)
    info = server_info(session, target)
    with errors.reading(f"the server's information at {target.base_url}"):
        said.speculation = merged(said.speculation, target.engine.info(info))
    if said.speculation.not_real:
        raise NotMeasured(
            f"acceptance is not real on this server ({', '.join(said.speculation.not_real)})",
            "forced_acceptance",
        )


def _process(target: Target, said: Said) -> None:
    """Command line and environment of a server on this machine."""
    if target.server_pid is not None and not processes.alive(target.server_pid):
        raise NotMeasured(f"the engine (pid {target.server_pid}) is gone; see its log")
    environ = dict(os.environ)
    where = urlsplit(target.base_url)
    pid = None
    if where.hostname in LOCAL and where.port is not None:
        pid = processes.find(where.port)
    if pid is not None:
        said.argv = _titled_argv(pid)
        with errors.reading(f"the command line of pid {pid}"):
            said.speculation = target.engine.speculation(said.argv)
        if forced := engines.forced_settings(processes.environ(pid)):
            raise NotMeasured(
                f"acceptance is not real: pid {pid} runs with {', '.join(forced)} set",
                "forced_acceptance",
            )
    said.forced_lengths = tuple(engines.forced_lengths(environ))


def _titled_argv(pid: int) -> tuple[str, ...]:
    """A process's command line; of its parent where it wrote a title over its own."""
    argv = processes.argv(pid)
    while argv and "::" in argv[0] and (pid := processes.parent(pid) or 0) > 1:
        argv = processes.argv(pid)
    return argv


def merged(argv: Speculation, info: Speculation) -> Speculation:
    """The command line's word first, the server's where that is silent, refusals of both."""
    filled = {
        name: getattr(info, name) if getattr(argv, name) is None else getattr(argv, name)
        for name in vars(info)
    }
    return replace(
        argv,
        **{
            **filled,
            "not_real": tuple(dict.fromkeys((*argv.not_real, *info.not_real))),
            "varying": tuple(dict.fromkeys((*argv.varying, *info.varying))),
        },
    )


def server_info(session: requests.Session, target: Target) -> Mapping[str, Any]:
    for path in target.engine.info_paths:
        try:
            return _json(session, target, path)
        except NotMeasured:
            continue
    return {}


def version(session: requests.Session, target: Target) -> str | None:
    """Of the engine, as the server says it; None when it doesn't."""
    for path in ("/version", *target.engine.info_paths):
        try:
            said = _json(session, target, path).get("version")
        except NotMeasured:
            continue
        if isinstance(said, str):
            return said
    return None


def _json(session: requests.Session, target: Target, path: str) -> dict[str, Any]:
    import requests

    url = target.base_url + path
    try:
        response = session.get(
            url,
            timeout=meters.SCRAPE_TIMEOUT_S,
            headers=client.api_headers(),
            allow_redirects=False,
        )
        response.raise_for_status()
        data = response.json()
    except (requests.RequestException, ValueError) as error:
        raise NotMeasured(f"{url} did not answer: {error}", "unreachable") from error
    if not isinstance(data, dict):
        raise NotMeasured(f"{url} answered {str(data)[:60]!r}, not an object")
    return data


def one_generation(load: Load, engine: Engine, models: Sequence[str] = ()) -> None:
    """Prove that generation works, and streams, with the very fields that the workload sends.

    Series that an engine creates with the first request of a kind exist from here on.

    Raises:
        NotMeasured: it doesn't, or the answer is of a model that the server doesn't offer.
    """
    short = replace(load, output_len=min(load.output_len, PROBE_TOKENS), concurrency=1)
    prompt = Prompt("probe", ({"role": "user", "content": "Say hello."},))
    (answer,) = client.run(short, [prompt], engine, Pace(1))
    if not answer.ok:
        raise NotMeasured(f"one generation at {load.url} failed: {answer.error}", "no_generation")
    name = answer.model or load.model
    if models and name not in models and not name.startswith(load.model):
        raise NotMeasured(f"{load.url} answers as {name}, not {load.model}", "other_model")


def meter(session: requests.Session, target: Target) -> Meter:
    """The first of the engine's sources that the server really shows.

    Raises:
        NotMeasured: none of them, or another number of ranks than expected.
    """
    if target.metrics_urls == ("none",):
        return Meter(session, (), target.engine, NO_METRICS)
    problems = []
    for source in target.engine.sources:
        urls = target.metrics_urls or (target.base_url + source.path,)
        found = Meter(session, urls, target.engine, source)
        try:
            _ranks(_probed(found), found, target.ranks)
        except NotMeasured as error:
            problems.append(error)
        else:
            return found
    if not problems:
        raise NotMeasured(target.engine.how_to_enable, "no_metrics")
    first = problems[0]
    more = "".join(f"; and {problem}" for problem in problems[1:])
    raise NotMeasured(f"{first}{more}", first.reason)


def _probed(found: Meter) -> window.Scrape:
    """One scrape; a page that is computed at intervals may have to be waited for."""
    end = time.monotonic() + (PROBE_DEADLINE_S if found.source.refreshed else 0.0)
    while True:
        try:
            return found.scrape()
        except NotMeasured as error:
            if error.reason != "no_metrics" or time.monotonic() > end:
                raise
        time.sleep(meters.SETTLE_INTERVAL_S)


def _ranks(scrape: window.Scrape, found: Meter, expected: int) -> None:
    if found.source.rank is None:
        return
    name, label = found.source.rank
    ranks = {(s.endpoint, s.label(label)) for s in select(scrape.samples, [name])}
    if len(ranks) != expected:
        raise NotMeasured(f"{len(ranks)} engines show metrics, {expected} are expected", "ranks")


def agree(source: Source, scrape: window.Scrape, said: Said, asked: Asked) -> None:
    """N and method of the server against those asked for.

    Raises:
        NotMeasured: they differ.
    """
    spoken = said.speculation
    pairs = [
        ("N", source.draft_length(scrape.samples), spoken.drafts_per_step or asked.draft_length),
        ("N by its arguments", spoken.num_speculative_tokens, asked.draft_length),
        ("method", spoken.method, asked.method),
    ]
    for what, server, wanted in pairs:
        if None in (server, wanted) or server == wanted or {server, wanted} in SAME_METHOD:
            continue
        raise NotMeasured(f"{what} of the server is {server}, asked for {wanted}", "read_back")
