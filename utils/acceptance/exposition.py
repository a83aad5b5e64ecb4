"""Prometheus and OpenMetrics text → samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from utils.errors import NotMeasured

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, order=True)
class Series:
    """One time series: where it was read, its exact sample name, its sorted labels."""

    endpoint: str
    name: str
    labels: Labels

    def label(self, name: str) -> str | None:
        return dict(self.labels).get(name)

    def __str__(self) -> str:
        inside = ",".join(f'{key}="{value}"' for key, value in self.labels)
        return f"{self.name}{{{inside}}} at {self.endpoint}"


Samples = dict[Series, float]


def parse(text: str, endpoint: str, content_type: str = "") -> Samples:
    """Samples of one scrape; a value may be NaN or infinite, whoever uses it decides.

    A series that comes twice with the same value counts once; with two values it is an error.

    Raises:
        NotMeasured: not exposition text, such as JSON or HTML.
    """
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
    from prometheus_client.parser import text_string_to_metric_families as prometheus

    if "json" in content_type or text.lstrip()[:1] in ("[", "{", '"', "<"):
        raise NotMeasured(
            f"{endpoint} answered {content_type or 'no content type'} instead of Prometheus text: "
            f"{text[:60]!r}; name the engine's own metrics endpoint with --metrics-url"
        )
    # vLLM's Rust front end ends a page with OpenMetrics' "# EOF" that the plain parser ignores,
    # but only the OpenMetrics parser knows its exemplars.
    families = openmetrics if "openmetrics" in content_type else prometheus
    samples: Samples = {}
    try:
        for family in families(text):
            for sample in family.samples:
                series = Series(endpoint, sample.name, tuple(sorted(sample.labels.items())))
                add(samples, series, float(sample.value))
    except (ValueError, KeyError, IndexError) as error:
        raise NotMeasured(f"{endpoint}: not Prometheus text ({error}): {text[:60]!r}") from error
    return samples


def add(samples: Samples, series: Series, value: float) -> None:
    """Put a series in.

    Raises:
        NotMeasured: it is there already with another value.
    """
    known = samples.get(series)
    if known is not None and known != value and not (math.isnan(known) and math.isnan(value)):
        raise NotMeasured(f"{series} is given twice, as {known:g} and {value:g}")
    samples[series] = value


def reader(spellings: Mapping[str, str]) -> Callable[[str, str, str, Samples], Samples]:
    """A page reader that spells name prefixes in one way: `vllm_` and `vllm:` are the same."""

    def read(text: str, endpoint: str, content_type: str, _: Samples) -> Samples:
        samples: Samples = {}
        for series, value in parse(text, endpoint, content_type).items():
            name = respelled(series.name, spellings)
            add(samples, Series(endpoint, name, series.labels), value)
        return samples

    return read


def respelled(name: str, spellings: Mapping[str, str]) -> str:
    for other, usual in spellings.items():
        if name.startswith(other):
            return usual + name[len(other) :]
    return name


def select(samples: Mapping[Series, float], names: Iterable[str]) -> Samples:
    """The samples whose name is exactly one of the given ones."""
    wanted = set(names)
    return {series: value for series, value in samples.items() if series.name in wanted}


def by_label(samples: Mapping[Series, float], name: str, label: str) -> dict[int, int]:
    """Sums of one name over everything but a numeric label, in the order of that label."""
    totals: dict[int, float] = {}
    for series, value in select(samples, [name]).items():
        text = series.label(label) or ""
        if not text.isdecimal():
            raise NotMeasured(f"{series} has no numeric label {label!r}")
        totals[int(text)] = totals.get(int(text), 0.0) + value
    return {key: round(totals[key]) for key in sorted(totals)}
