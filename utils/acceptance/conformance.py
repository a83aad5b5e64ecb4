"""Which of a server's speculation figures agree with the definition, and why the others differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from utils import errors
from utils.acceptance import client, measure, preflight, tally, window
from utils.acceptance.checks import Asked, acceptance_length
from utils.acceptance.client import Answer, Load, Pace, Prompt
from utils.acceptance.engines import Counts, Reported, RequestCounts
from utils.acceptance.measure import Derived
from utils.acceptance.preflight import Said, Target
from utils.errors import UsageError

# Relative; counts are whole numbers, so figures that mean the same differ by rounding only.
TOLERANCE = 1e-3
DEFINITION = "1 + accepted draft tokens / verify steps, over all requests of the window"
TEXTS = (
    "Write a Python function that returns the n-th Fibonacci number.",
    "Repeat the word 'harness' twenty times, separated by commas.",
    "Explain in two sentences why the sky is blue.",
    "Continue the list: 1, 2, 3, 4, 5,",
    "Write a haiku about a slow server.",
    "Count from one to thirty in words.",
    "Translate 'good morning, how are you' into French, German and Spanish.",
    "Write a JSON object with the keys name, age and city.",
)


@dataclass(frozen=True)
class Figure:
    """One speculation figure. differs: by what and why; empty where it agrees."""

    name: str
    value: float
    expected: float
    differs: str

    def line(self) -> str:
        mark = "differs" if self.differs else "agrees"
        away = self.value / self.expected - 1
        why = f"  {away:+.2%}: {self.differs}" if self.differs else ""
        return f"{mark:<8} {self.value:10.4f}  {self.name}{why}"


@dataclass(frozen=True)
class Report:
    """What was found on one server."""

    engine: str
    draft_length: int
    method: str | None
    derived: Derived
    figures: tuple[Figure, ...]

    @property
    def status(self) -> int:
        if self.derived.broken:
            return errors.NOT_MEASURED
        return errors.FAIL if any(figure.differs for figure in self.figures) else errors.PASS

    def lines(self) -> Iterator[str]:
        found = self.derived.tally
        yield f"{self.engine}, N={self.draft_length}, method {self.method or 'unknown'}"
        yield f"definition: {DEFINITION}"
        yield f"by {found.source}: {found.counts.accepted} accepted, {found.counts.steps} steps"
        yield from (figure.line() for figure in self.figures)
        for check in self.derived.checks:
            if check.ok is not None:
                mark = "holds" if check.ok else "BROKEN" if check.fatal else "warning"
                yield f"{mark:<8} {check}"


def examine(target: Target, requests: int, output_len: int, asked: Asked) -> Report:
    """A few generations on a live server, then every comparison that it allows.

    asked.draft_length 0 and asked.method None are read back from the server.

    Raises:
        NotMeasured: there is no valid window.
        UsageError: N is neither given nor told by the server.
    """
    load = Load(
        target.base_url, target.model, {"temperature": 0.0, "top_p": 1.0}, {}, output_len, 4
    )
    texts = [f"{TEXTS[i % len(TEXTS)]} ({i})" for i in range(requests)]
    prompts = [
        Prompt(f"conformance/{i}", ({"role": "user", "content": text},))
        for i, text in enumerate(texts)
    ]
    session, said, pace = window.local_session(), Said(), Pace(load.concurrency)
    preflight.ask(session, target, said)
    preflight.one_generation(load, target.engine, said.models)
    meter = preflight.meter(session, target)
    before = meter.settled(measure.SETTLE_DEADLINE_S)
    asked = _read_back(asked, said, meter.source.draft_length(before.samples))
    preflight.agree(meter.source, before, said, asked)
    with meter.polling():
        answers = client.run(load, prompts, target.engine, pace)
    after = meter.settled(measure.SETTLE_DEADLINE_S, patience_s=0.0)
    derived = measure.derive(target.engine, asked, before, after, answers, pace=pace)
    info = preflight.server_info(session, target)
    reported = target.engine.reported(after.samples, info)
    figures = tuple(_figures(asked, derived, answers, reported))
    return Report(target.engine.name, asked.draft_length, asked.method, derived, figures)


def _read_back(asked: Asked, said: Said, shown: int | None) -> Asked:
    n = asked.draft_length or shown or said.speculation.num_speculative_tokens
    if not n:
        raise UsageError("the server doesn't say its draft length: name it with --num-spec-tokens")
    return replace(asked, draft_length=n, method=asked.method or said.speculation.method)


def _figures(
    asked: Asked, derived: Derived, answers: Sequence[Answer], reported: Sequence[Reported]
) -> Iterator[Figure]:
    found, n = derived.tally, asked.draft_length
    al = derived.estimate.acceptance_length
    lost = sum(answer.ok for answer in answers) * n / max(found.counts.steps, 1)
    for name, counts in (
        ("counters", found.by_counters),
        (tally.BY_REQUESTS, found.by_requests),
        (tally.BY_STREAM, found.by_stream),
    ):
        if counts and counts.steps:
            value, less = acceptance_length(counts), lost if counts.delivered_only else 0.0
            note = f", less what stops cut off (up to {lost:.4f})" if less else ""
            if al - less <= value < al:
                yield Figure(f"AL by {name}{note}", value, al, "")
            else:
                yield _figure(f"AL by {name}{note}", value, al, _why(counts))
    yield from _requests(answers)
    for figure in reported:
        if figure.value:
            yield _figure(figure.name, figure.value, al, figure.meaning)


def _why(counts: Counts) -> str:
    if counts.all_steps:
        return "steps without a draft are counted"
    if counts.delivered_only:
        return "merged chunks, or tokens without text (a stop token's) that made no chunk"
    return "another count"


def _requests(answers: Sequence[Answer]) -> Iterator[Figure]:
    """What each request's answer states as its acceptance length, against its own counts."""
    told = [(a, a.spec) for a in answers if a.spec and a.spec.steps and a.spec.reported]
    if not told:
        return
    steps = sum(spec.steps for _, spec in told)
    stated = sum((spec.reported or 0.0) * spec.steps for _, spec in told) / steps
    expected = 1 + sum(spec.accepted for _, spec in told) / steps
    reasons: Mapping[str, Callable[[Answer, RequestCounts], float]] = {
        "the bonus token is left out": lambda _, s: s.accepted / s.steps,
        "the prefill token is counted": lambda _, s: (s.accepted + s.steps + 1) / s.steps,
        "the prefill token is counted, what stops cut off is not": lambda a, s: (
            (a.completion_tokens or 0) / s.steps
        ),
    }
    why = "for another reason than bonus token, prefill token or stops"
    for reason, formula in reasons.items():
        if all(_same(spec.reported or 0.0, formula(a, spec)) for a, spec in told):
            why = reason
            break
    yield _figure("the requests' own acceptance lengths, by steps", stated, expected, why)


def _figure(name: str, value: float, expected: float, why: str) -> Figure:
    return Figure(name, value, expected, "" if _same(value, expected) else why)


def _same(value: float, expected: float) -> bool:
    return abs(value - expected) <= TOLERANCE * expected


def as_json(report: Report) -> dict[str, Any]:
    return {
        "engine": report.engine,
        "num_speculative_tokens": report.draft_length,
        "method": report.method,
        "figures": [vars(figure) for figure in report.figures],
        "checks": [check.as_json() for check in report.derived.checks],
    }
