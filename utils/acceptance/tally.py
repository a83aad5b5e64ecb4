"""What a window comes to, by each instrument that saw it: counters, requests, stream chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from utils.acceptance import window
from utils.acceptance.client import Answer
from utils.acceptance.engines import NO_METRICS, Counts, Engine, Source
from utils.acceptance.window import PROCESS, Scrape
from utils.errors import NotMeasured

# n-gram lookup proposes nothing where the text has no match; such a step can't be told from one
# that accepted nothing by looking at the stream.
SOMETIMES_DRAFTS = {"ngram", "ngram_gpu", "suffix"}
BY_REQUESTS = "requests' own figures"
BY_STREAM = "stream chunks"


@dataclass(frozen=True)
class Tally:
    """The counts that the AL rests on, where they are from, and what the others say.

    source: name of the instrument. quantity: what its AL is. by_counters, by_requests, by_stream:
    every instrument that has a say.
    """

    counts: Counts
    source: str
    quantity: str
    by_counters: Counts | None
    by_requests: Counts | None
    by_stream: Counts | None


def always_drafts(method: str | None) -> bool:
    return method is not None and method not in SOMETIMES_DRAFTS


def count(
    engine: Engine, method: str | None, before: Scrape, after: Scrape, answers: Sequence[Answer]
) -> Tally:
    """Choose the instrument, and keep the others for comparison.

    Raises:
        NotMeasured: the scrapes don't make a window, or no instrument has a say.
    """
    source = source_of(engine, before)
    if source_of(engine, after) is not source:
        raise NotMeasured("the scrapes before and after the load are not of one source")
    counters = None
    if source is not NO_METRICS:
        counters = source.counts(window.deltas(before, after, source))
    requests = _by_requests(engine, answers)
    stream = _by_stream(answers) if always_drafts(method) else None
    if counters and not (engine.own_first and requests):
        chosen, label, quantity = counters, source.label, source.quantity
    elif requests:
        chosen, label, quantity = requests, BY_REQUESTS, engine.own_quantity
    elif stream:
        chosen, label = stream, BY_STREAM
        quantity = "decode tokens / decode chunks, less what last steps lost at a stop"
    else:
        raise NotMeasured(
            "no metrics, no figures of the requests' own, and stream chunks measure only a known "
            f"method that always drafts (this one is {method or 'unknown: say --spec-method'}): "
            f"{engine.how_to_enable}",
            "no_instrument",
        )
    if chosen.accepted < 0:
        text = f"{chosen.accepted} accepted in {chosen.steps} steps: more steps than tokens"
        raise NotMeasured(f"by {label}: {text}", "impossible")
    return Tally(_with_traffic(chosen, counters), label, quantity, counters, requests, stream)


def source_of(engine: Engine, scrape: Scrape) -> Source:
    """Which of an engine's sources a scrape is from, by the samples in it."""
    names = {series.name for series in scrape.samples} - {PROCESS}
    for source in engine.sources:
        if source.shown <= names:
            return source
    if not names:
        return NO_METRICS
    raise NotMeasured(f"a scrape has none of the counters of {engine.name}")


def _with_traffic(chosen: Counts, counters: Counts | None) -> Counts:
    if counters is None or counters is chosen:
        return chosen
    return replace(
        chosen,
        requests=counters.requests,
        prompt_tokens=counters.prompt_tokens,
        generated_tokens=counters.generated_tokens,
    )


def _by_requests(engine: Engine, answers: Sequence[Answer]) -> Counts | None:
    """Sums of the requests' own figures, if every one has them."""
    own = [answer.spec for answer in answers if answer.spec]
    if not own or len(own) != len(answers):
        return None
    if engine.own_first and any(_left_out(answer) for answer in answers):
        return None
    histograms = [spec.histogram for spec in own]
    drafted = [spec.drafted for spec in own]
    return Counts(
        steps=sum(spec.steps for spec in own),
        accepted=sum(spec.accepted for spec in own),
        drafted=None if None in drafted else sum(d or 0 for d in drafted),
        per_position=_positions([h or [] for h in histograms]) if any(histograms) else None,
        all_steps=engine.own_all_steps,
    )


def _left_out(answer: Answer) -> bool:
    """SGLang fills in zeros where it has no figures; a second token needs a verify step."""
    return answer.spec is not None and not answer.spec.steps and (answer.completion_tokens or 0) > 1


def _positions(histograms: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Accepted drafts per position, from steps by number of accepted drafts."""
    most = max(map(len, histograms))
    return tuple(sum(sum(h[position:]) for h in histograms) for position in range(1, most))


def _by_stream(answers: Sequence[Answer]) -> Counts | None:
    """One chunk a step, after the one of the prefill."""
    rows = [row for answer in answers if (row := stream_row(answer))]
    if not rows:
        return None
    return Counts(
        steps=sum(steps for _, steps in rows),
        accepted=sum(accepted for accepted, _ in rows),
        delivered_only=True,
    )


def stream_row(answer: Answer) -> tuple[int, int] | None:
    """(accepted, steps) of one request by its chunks; None for one that took no step."""
    if not answer.ok or answer.chunks < 2:
        return None
    return (answer.completion_tokens or 0) - answer.chunks, answer.chunks - 1


def exact_rows(engine: Engine, answers: Sequence[Answer]) -> list[tuple[int, int]] | None:
    """(accepted, steps) per request by its own figures, in steps as the AL counts them.

    None where a request has none, or where its steps include those without a draft.
    """
    if engine.own_all_steps or not all(answer.ok for answer in answers):
        return None
    if not _by_requests(engine, answers):
        return None
    return [(a.spec.accepted, a.spec.steps) for a in answers if a.spec]


def request_rows(
    engine: Engine, method: str | None, answers: Sequence[Answer]
) -> list[tuple[int, int]]:
    """(accepted, steps) per request: its own figures, or chunks if the method always drafts."""
    if _by_requests(engine, answers):
        return [(a.spec.accepted, a.spec.steps) for a in answers if a.spec]
    if not always_drafts(method):
        return []
    return [row for answer in answers if (row := stream_row(answer))]
