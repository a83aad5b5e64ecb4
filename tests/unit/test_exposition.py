from __future__ import annotations

import math

import pytest

from utils.acceptance.exposition import Series, parse, select
from utils.errors import NotMeasured

DRAFTS = "vllm:spec_decode_num_drafts_total"


def values(text: str, name: str = DRAFTS, content_type: str = "") -> list[float]:
    return sorted(select(parse(text, "u", content_type), [name]).values())


def test_created_timestamps_are_not_counts() -> None:
    text = f"{DRAFTS} 22\nvllm:spec_decode_num_drafts_created 1.756e+09\n"
    assert values(text) == [22]


def test_every_rank_is_a_series_of_its_own() -> None:
    assert values(f'{DRAFTS}{{engine="0"}} 10\n{DRAFTS}{{engine="1"}} 12\n') == [10, 12]


@pytest.mark.parametrize(
    ("written", "read"), [("1.2e+06", 1.2e6), ("6.491797e+06", 6491797), ("7 1700000000000", 7)]
)
def test_exponents_and_timestamps(written: str, read: float) -> None:
    assert values(f"{DRAFTS} {written}\n") == [read]


def test_label_values_may_hold_anything() -> None:
    (series,) = parse(f'{DRAFTS}{{model_name="a \\"b\\", {{c}} \\\\"}} 1\n', "u")
    assert series.label("model_name") == 'a "b", {c} \\'


def test_nan_is_kept_for_the_caller_to_refuse() -> None:
    assert math.isnan(values(f"{DRAFTS} NaN\n")[0])


def test_openmetrics_with_exemplar_and_end() -> None:
    text = f'# TYPE {DRAFTS[:-6]} counter\n{DRAFTS} 5 # {{trace_id="x"}} 99\n# EOF\n'
    assert values(text, content_type="application/openmetrics-text; version=1.0.0") == [5]


@pytest.mark.parametrize(
    ("text", "content_type"),
    [
        ("[]", "application/json"),
        ("[]", "text/plain"),
        ('{"a": 1}', ""),
        ("<html></html>", "text/html"),
        ('"# HELP a\\n"', "text/plain"),
        ("a b c d\n", ""),
    ],
)
def test_anything_else_is_an_error_that_names_the_endpoint(text: str, content_type: str) -> None:
    with pytest.raises(NotMeasured, match="http://h/metrics"):
        parse(text, "http://h/metrics", content_type)


def test_a_series_twice_counts_once_unless_it_contradicts_itself() -> None:
    assert values(f"{DRAFTS} 3\n{DRAFTS} 3\n") == [3]
    with pytest.raises(NotMeasured, match="given twice, as 3 and 4"):
        parse(f"{DRAFTS} 3\n{DRAFTS} 4\n", "u")


def test_series_names_itself() -> None:
    assert str(Series("http://h/metrics", "a", (("b", "c"),))) == 'a{b="c"} at http://h/metrics'
