"""One file per engine: a new engine is a new file with an `ENGINE` in it, listed nowhere."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from utils.acceptance.exposition import Samples
from utils.errors import UsageError
from utils.models import near


@dataclass(frozen=True)
class Counts:
    """What a window holds, in the project's own terms.

    steps: verify steps with at least one draft token. accepted: draft tokens accepted by the
    verifier. drafted: draft tokens proposed. per_position: accepted drafts per position, the
    first position first. requests, prompt_tokens, generated_tokens: by the server's count.
    """

    steps: int
    accepted: int
    drafted: int
    per_position: tuple[int, ...]
    requests: int
    prompt_tokens: int
    generated_tokens: int


@dataclass(frozen=True)
class RequestCounts:
    """One request's own figures, as the engine puts them into its answer."""

    steps: int
    accepted: int
    drafted: int


@dataclass(frozen=True)
class Speculation:
    """How a server speculates, read from its own command line; None where that doesn't say."""

    method: str | None = None
    num_speculative_tokens: int | None = None
    draft_model: str | None = None
    draft_sample_method: str | None = None
    rejection_sample_method: str | None = None
    not_real: tuple[str, ...] = ()
    """Settings that force acceptance or trade exactness for it, as `name=value`."""


@dataclass(frozen=True)
class Engine:
    """What differs between engines.

    counters: exact sample names whose growth is measured. busy: gauges that are 0 on an idle
    server. restart_witnesses: samples that change only when the process or a series starts anew.
    """

    name: str
    how_to_enable: str
    counters: frozenset[str]
    busy: frozenset[str]
    restart_witnesses: frozenset[str]
    rank_label: str
    counts: Callable[[Samples], Counts]
    draft_length: Callable[[Samples], int | None]
    request_counts: Callable[[Mapping[str, Any]], RequestCounts | None]
    speculation: Callable[[Sequence[str]], Speculation]
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    forcing_variables: frozenset[str] = frozenset()


def load(name: str) -> Engine:
    """The adapter of an engine.

    Raises:
        UsageError: there is none of that name.
    """
    known = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if name not in known:
        raise UsageError(f"no adapter for engine {name!r}; {near(name, known)}")
    engine: Engine = importlib.import_module(f"{__name__}.{name}").ENGINE
    return engine
