"""--engine auto: which adapter reads this server, by what the server says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from utils import errors
from utils.acceptance import client, engines, meter, window
from utils.acceptance.engines import Engine
from utils.acceptance.exposition import parse
from utils.errors import NotMeasured

if TYPE_CHECKING:
    import requests

AUTO = "auto"


@dataclass(frozen=True)
class Recognised:
    """An adapter, and the words of the server by which it was chosen."""

    engine: Engine
    by: str


def recognise(base_url: str, metrics_urls: Sequence[str]) -> Recognised:
    """By the metrics page first, by the model list second.

    Raises:
        NotMeasured: neither says, or the page speaks of two engines.
    """
    session = window.local_session()
    adapters = list({engine.name: engine for engine in engines.known().values()}.values())
    for url in metrics_urls or [f"{base_url}/metrics"]:
        if found := _by_page(session, url, adapters):
            return found
    owner = _owner(session, base_url)
    for engine in adapters:
        if owner is not None and engine.owner == owner.lower():
            return Recognised(engine, f"{base_url}/v1/models is owned by {owner}")
    raise NotMeasured(
        f"can't tell which engine serves {base_url}: its metrics say nothing, its models are owned "
        f"by {owner or 'nobody'}; name it with --engine",
        "unknown_engine",
    )


def _by_page(session: requests.Session, url: str, adapters: Sequence[Engine]) -> Recognised | None:
    try:
        page = meter.get(session, url)
    except NotMeasured:
        return None
    content_type = page.headers.get("content-type", "")
    if page.text.lstrip().startswith("[") and "json" in content_type:
        return Recognised(engines.load("trt"), f"{url} is a JSON list of iterations")
    try:
        samples = parse(page.text, url, content_type)
    except NotMeasured:
        return None
    names = {series.name for series in samples}
    dynamo = any(series.label("dynamo_component") for series in samples)
    hits = {
        engine.name: name
        for engine in adapters
        if engine.prefixes and (name := _first(names, engine.prefixes))
    }
    if len(hits) > 1:
        raise NotMeasured(f"{url} has metrics of {' and '.join(sorted(hits))}; name one: --engine")
    for engine, name in hits.items():
        return Recognised(
            engines.load(f"dynamo-{engine}" if dynamo else engine),
            f"{url} has {name}{' of a Dynamo worker' if dynamo else ''}",
        )
    return None


def _first(names: set[str], prefixes: tuple[str, ...]) -> str | None:
    return min((name for name in names if name.startswith(prefixes)), default=None)


def _owner(session: requests.Session, base_url: str) -> str | None:
    """`owned_by` of the served models."""
    session.headers.update(client.api_headers())
    url = f"{base_url}/v1/models"
    try:
        page = meter.get(session, url)
        with errors.reading(url):
            owner = page.json()["data"][0]["owned_by"]
    except NotMeasured:
        return None
    return owner if isinstance(owner, str) else None
