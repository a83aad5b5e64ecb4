"""One file per engine: a new engine is a new file with an `ENGINE` or `ENGINES`, listed nowhere."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from utils.acceptance.exposition import Samples, select
from utils.errors import NotMeasured, UsageError
from utils.models import near

# They make an engine report an acceptance that it did not reach.
FORCED_ACCEPTANCE = (
    "SGLANG_SIMULATE_ACC_LEN",
    "SGLANG_SIMULATE_ACC_METHOD",
    "SGLANG_SIMULATE_ACC_TOKEN_MODE",
    "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS",
    "ATOM_ENABLE_RELAXED_MTP",
)
# The two that say how long, and what must be added to make it an AL (the bonus token).
_FORCED_LENGTHS = {
    "SGLANG_SIMULATE_ACC_LEN": 0.0,
    "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": 1.0,
}
_OFF = ("", "0", "false", "False")
TOO_MANY = 2**53  # of anything; from here on floats don't count


@dataclass(frozen=True)
class Counts:
    """What a window holds, in the project's own terms; None where the engine doesn't say.

    steps: verify steps with at least one draft token. accepted: draft tokens accepted by the
    verifier. drafted: draft tokens proposed. per_position: accepted drafts per position, the
    first position first. requests, prompt_tokens, generated_tokens: by the server's count.
    delivered_only: accepted lacks what a request's last step lost at a stop token or at
    max_tokens, up to N tokens a request. all_steps: steps without a draft are among the steps.
    """

    steps: int
    accepted: int
    drafted: int | None = None
    per_position: tuple[int, ...] | None = None
    requests: int | None = None
    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    delivered_only: bool = False
    all_steps: bool = False


@dataclass(frozen=True)
class RequestCounts:
    """One request's own figures, as the engine puts them into its answer.

    histogram: steps by number of accepted drafts, from 0. reported: the acceptance length that
    the engine itself states for this request, whatever it means by it.

    Raises:
        TypeError: a figure is not what it should be; it came from outside.
    """

    steps: int
    accepted: int
    drafted: int | None
    histogram: list[int] | None = None
    reported: float | None = None

    def __post_init__(self) -> None:
        drafted = () if self.drafted is None else (self.drafted,)
        for value in (self.steps, self.accepted, *drafted, *(self.histogram or ())):
            if type(value) is not int or not 0 <= value < TOO_MANY:
                raise TypeError(f"{value!r} where a count should be")
        if self.reported is not None and type(self.reported) not in (int, float):
            raise TypeError(f"{self.reported!r} where an acceptance length should be")


@dataclass(frozen=True)
class Speculation:
    """How a server speculates, by its command line or its own information; None: not said.

    not_real: settings that force acceptance or trade exactness for it, as `name=value`.
    varying: settings under which the draft length isn't N in every step. drafts_per_step: draft
    tokens of a step where they are a tree, of which N is only the depth.
    """

    method: str | None = None
    num_speculative_tokens: int | None = None
    draft_model: str | None = None
    draft_sample_method: str | None = None
    rejection_sample_method: str | None = None
    not_real: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()
    prefix_caching: bool | None = None
    drafts_per_step: int | None = None


@dataclass(frozen=True)
class Reported:
    """An acceptance figure of the server's own, and why it may differ from the definition."""

    name: str
    value: float
    meaning: str


Read = Callable[[str, str, str, Samples], Samples]
"""(text, endpoint, content type, this endpoint's samples before) → samples."""


def growth(samples: Samples, name: str) -> int | None:
    """Sum over all series of one name; None when there is none."""
    found = select(samples, [name])
    return round(sum(found.values())) if found else None


def total(samples: Samples, name: str) -> int:
    """growth() of a counter that an AL rests on.

    Raises:
        NotMeasured: there is no such series, which is not the same as none counted.
    """
    found = growth(samples, name)
    if found is None:
        raise NotMeasured(f"the window holds no {name}", "missing_counter")
    return found


@dataclass(frozen=True)
class Source:
    """One way to read an engine's counters.

    label, quantity: what a record says it was measured with, and what the figure is. required:
    sample names that every endpoint must show. optional: counters that are used where they are.
    lazy: counters whose series the engine creates when they first count something. gauges: kept
    for `draft_length`. busy: gauges that are 0 on an idle server. witnesses: samples that change
    only when the process or a series starts anew. rank: the sample and label that tell
    data-parallel ranks apart, None where the engine adds them up. refreshed: a sample that changes
    when the page is computed anew. exact_below: greatest value that the page prints exactly.
    poll_s: the page can be read once only, so it must be read this often, by nobody else.
    """

    label: str
    quantity: str
    read: Read
    counts: Callable[[Samples], Counts]
    required: frozenset[str]
    path: str = "/metrics"
    optional: frozenset[str] = frozenset()
    lazy: frozenset[str] = frozenset()
    gauges: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()
    witnesses: frozenset[str] = frozenset({"process_start_time_seconds"})
    rank: tuple[str, str] | None = None
    refreshed: str | None = None
    exact_below: float = math.inf
    poll_s: float | None = None
    draft_length: Callable[[Samples], int | None] = lambda _: None

    @property
    def counters(self) -> frozenset[str]:
        return self.required | self.optional

    @property
    def shown(self) -> frozenset[str]:
        """What a page must have to be this source's."""
        return self.required | ({self.refreshed} if self.refreshed else set())

    @property
    def kept(self) -> frozenset[str]:
        return self.shown | self.optional | self.busy | self.gauges | self.witnesses


# A server that hides its metrics: requests' own figures or stream chunks must do.
NO_METRICS = Source(
    label="no metrics",
    quantity="",
    read=lambda *_: {},
    counts=lambda _: Counts(0, 0),
    required=frozenset(),
)


@dataclass(frozen=True)
class Engine:
    """What differs between engines.

    sources: ways to read its counters, the best first. prefixes: what its metrics begin with.
    owner: `owned_by` of its model list. own_first: requests' own figures are better than its
    counters. own_all_steps: their steps include those without a draft. request_counts: reads them
    from a response or from its last stream chunk. speculation: reads a command line. info_paths,
    info: server information, read as the command line is. reported: acceptance figures of its
    own, for comparison.
    """

    name: str
    how_to_enable: str
    sources: tuple[Source, ...]
    prefixes: tuple[str, ...] = ()
    owner: str | None = None
    aliases: tuple[str, ...] = ()
    own_quantity: str = "1 + accepted / verify steps, by the requests' own figures"
    own_first: bool = False
    own_all_steps: bool = False
    request_counts: Callable[[Mapping[str, Any]], RequestCounts | None] = lambda _: None
    speculation: Callable[[Sequence[str]], Speculation] = lambda _: Speculation()
    info_paths: tuple[str, ...] = ()
    info: Callable[[Mapping[str, Any]], Speculation] = lambda _: Speculation()
    reported: Callable[[Samples, Mapping[str, Any]], list[Reported]] = lambda *_: []
    extra_body: Mapping[str, Any] = field(default_factory=dict)


def known() -> dict[str, Engine]:
    """Every adapter by name and alias."""
    found: dict[str, Engine] = {}
    for module in pkgutil.iter_modules(__path__):
        adapter = importlib.import_module(f"{__name__}.{module.name}")
        for engine in getattr(adapter, "ENGINES", None) or (adapter.ENGINE,):
            found.update(dict.fromkeys((engine.name, *engine.aliases), engine))
    return found


def load(name: str) -> Engine:
    """The adapter of an engine.

    Raises:
        UsageError: there is none of that name.
    """
    adapters = known()
    if name not in adapters:
        raise UsageError(f"no adapter for engine {name!r}; {near(name, adapters)}")
    return adapters[name]


def forced_settings(environ: Mapping[str, str]) -> list[str]:
    """Variables of an environment that force acceptance, with their values."""
    return [
        f"{name}={environ[name]}" for name in FORCED_ACCEPTANCE if environ.get(name, "") not in _OFF
    ]


def forced_lengths(environ: Mapping[str, str]) -> list[float]:
    """Acceptance lengths that an environment would force."""
    lengths = []
    for name, bonus in _FORCED_LENGTHS.items():
        try:
            lengths.append(float(environ.get(name, "")) + bonus)
        except ValueError:
            continue
    return [length for length in lengths if 1.0 <= length < math.inf]
