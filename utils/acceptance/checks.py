"""Cross-checks of one window: each says what it compared, and whether the AL can be believed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from utils.acceptance.client import Answer, Pace
from utils.acceptance.engines import Counts

FORCED_TOLERANCE = 0.005
MAX_LOOP_LAG_S = 0.25
MAX_CPU_SHARE = 0.9


@dataclass(frozen=True)
class Asked:
    """What a measurement was asked to be.

    draft_length: N. method: None when unknown. prompts: how many requests were to be sent.
    output_len: maximum new tokens of a request. thinking: reasoning mode asked for.
    """

    draft_length: int
    method: str | None
    thinking: str
    prompts: int
    output_len: int


@dataclass(frozen=True)
class Readback:
    """What the server said of itself, as far as a window's validity hangs on it.

    varying: settings under which N isn't the draft length of every step. forced_lengths:
    acceptance lengths that some environment would force. one_process: whether something
    proves that one process answered all the time. drafts_per_step: draft tokens of a step where
    they are a tree; None: N. draft_length: of a step by its metrics, if they tell.
    """

    varying: tuple[str, ...] = ()
    forced_lengths: tuple[float, ...] = ()
    prefix_caching: bool | None = None
    one_process: bool | None = None
    drafts_per_step: int | None = None
    draft_length: int | None = None


@dataclass(frozen=True)
class Check:
    """One comparison. ok: None where it does not apply. fatal: a broken one invalidates the AL."""

    name: str
    ok: bool | None
    measured: str
    expected: str
    fatal: bool = True

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def broken(self) -> bool:
        return self.fatal and self.ok is False

    def __str__(self) -> str:
        return f"{self.name}: {self.measured}, want {self.expected}"


def run(
    asked: Asked,
    counts: Counts,
    answers: Sequence[Answer],
    readback: Readback,
    pace: Pace | None = None,
) -> Iterator[Check]:
    """Checks of everything around the counts: requests, traffic, server and client."""
    yield from _answers(asked, answers)
    yield from _foreign_traffic(counts, answers)
    yield from _server(asked, counts, readback)
    yield from _client(asked, pace)


def _answers(asked: Asked, answers: Sequence[Answer]) -> Iterator[Check]:
    failed = [answer for answer in answers if not answer.ok]
    example = f" ({failed[0].id}: {failed[0].error})" if failed else ""
    good = len(answers) - len(failed)
    yield Check(
        "all_requests_succeeded",
        good == asked.prompts,
        f"{good} of {asked.prompts} succeeded{example}",
        "all",
    )


def _foreign_traffic(counts: Counts, answers: Sequence[Answer]) -> Iterator[Check]:
    pairs = {
        "requests": (counts.requests, sum(a.ok for a in answers)),
        "generated_tokens": (
            counts.generated_tokens,
            sum(a.completion_tokens or 0 for a in answers),
        ),
        "prompt_tokens": (counts.prompt_tokens, sum(a.prompt_tokens or 0 for a in answers)),
    }
    for name, (server, ours) in pairs.items():
        yield Check(
            f"server_{name}_equal_ours",
            None if server is None else server == ours,
            f"the server counted {'nothing' if server is None else server}, the client {ours}",
            "the same: a difference is somebody else's traffic, a warm-up or a missed rank",
        )
    known = counts.requests is not None or counts.generated_tokens is not None
    yield Check(
        "traffic_is_countable",
        known,
        f"the server's metrics {'count' if known else 'do not count'} requests or tokens",
        "a count: without it somebody else's traffic can't be excluded",
        fatal=False,
    )


def _server(asked: Asked, counts: Counts, readback: Readback) -> Iterator[Check]:
    yield Check(
        "one_process",
        readback.one_process or None,
        f"the same process {'was' if readback.one_process else 'was not'} proven at both ends",
        "a start time, on the metrics page or of the local process",
        fatal=False,
    )
    n, shown = readback.drafts_per_step or asked.draft_length, readback.draft_length
    yield Check(
        "draft_length_is_the_servers",
        None if shown is None else shown == n,
        f"the server's metrics show {shown or 'no'} draft tokens a step",
        f"{n}",
    )
    yield Check(
        "draft_length_is_fixed",
        not readback.varying,
        f"the server has {', '.join(readback.varying) or 'nothing that varies it'}",
        "N draft tokens in every step",
    )
    yield Check(
        "prefix_caching_off",
        None if readback.prefix_caching is None else not readback.prefix_caching,
        f"prefix caching is {'on' if readback.prefix_caching else 'off or unknown'}",
        "off: a hit can pad the first step, and acceptance drifts with what was served before",
        fatal=False,
    )
    al = acceptance_length(counts)
    forced = [v for v in readback.forced_lengths if abs(al / v - 1) <= FORCED_TOLERANCE]
    yield Check(
        "not_a_forced_value",
        not forced if readback.forced_lengths else None,
        f"AL {al:.4f}, forced by the environment: {list(readback.forced_lengths) or 'nothing'}",
        "an AL that no setting would have produced",
    )


def acceptance_length(counts: Counts) -> float:
    """AL of counts that may hold no step; then it is below any possible one."""
    return 1 + counts.accepted / counts.steps if counts.steps else 0.0


def _client(asked: Asked, pace: Pace | None) -> Iterator[Check]:
    if pace is None:
        return
    wanted = min(pace.concurrency, asked.prompts)
    yield Check(
        "client_keeps_up",
        pace.reached_concurrency >= wanted
        and pace.loop_lag_s <= MAX_LOOP_LAG_S
        and pace.cpu_share <= MAX_CPU_SHARE,
        f"{pace.reached_concurrency} at once, start lag {pace.start_lag_s:.3f} s, "
        f"loop lag {pace.loop_lag_s:.3f} s, {pace.cpu_share:.0%} of a core",
        f"{wanted} at once, loop lag at most {MAX_LOOP_LAG_S:g} s, "
        f"at most {MAX_CPU_SHARE:.0%} of a core: else the client is the bottleneck",
        fatal=False,
    )
