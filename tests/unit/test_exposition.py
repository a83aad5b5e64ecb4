from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utils.acceptance.exposition import Series, parse, reader, select
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


PIECES = st.sampled_from(
    [
        *(DRAFTS, "{", "}", 'engine="0"', 'a="\\', '"', ",", " ", "1", "1e3", "NaN", "+Inf", "-"),
        *("# TYPE ", "# HELP ", "# EOF", " counter", " # {", "\n", "\t", "\r", "é", "\x00"),
    ]
)


@given(st.lists(PIECES, max_size=25).map("".join), st.sampled_from(["", "openmetrics-text"]))
def test_any_text_is_samples_or_one_named_error(text: str, content_type: str) -> None:
    try:
        samples = parse(text, "u", content_type)
    except NotMeasured:
        return
    assert all(isinstance(value, float) for value in samples.values())


@given(
    st.integers(0, 10**15), st.sampled_from(["{}", "{}.0", "{:e}", "{:.1f}", "{} 1700000000000"])
)
def test_numbers_survive_every_notation(value: int, notation: str) -> None:
    written = notation.format(value)
    assert values(f'{DRAFTS}{{engine="0"}} {written}\n') == [float(written.split()[0])]


def test_two_spellings_of_a_series_are_one() -> None:
    read = reader({"vllm_": "vllm:"})
    page = f"{DRAFTS} 3\n{DRAFTS.replace(':', '_')} 3\n"
    assert read(page, "u", "", {}) == {Series("u", DRAFTS, ()): 3}
    with pytest.raises(NotMeasured, match="given twice"):
        read(page.replace("3", "4", 1), "u", "", {})
