from __future__ import annotations

import math

import pytest

from utils.acceptance import window
from utils.acceptance.engines import load
from utils.acceptance.engines.vllm import ACCEPTED, DRAFTS
from utils.acceptance.exposition import Samples, Series
from utils.acceptance.window import Scrape
from utils.errors import NotMeasured, UsageError

VLLM = load("vllm").sources[0]
START = "process_start_time_seconds"


def scrape(*rows: tuple[str, str, float]) -> Scrape:
    samples: Samples = {Series("u", name, (("engine", rank),)): value for name, rank, value in rows}
    return Scrape("2026-12-01T00:00:00Z", samples)


def test_deltas_are_per_series() -> None:
    before = scrape((DRAFTS, "0", 10), (DRAFTS, "1", 100))
    after = scrape((DRAFTS, "0", 15), (DRAFTS, "1", 100))
    assert sorted(window.deltas(before, after, VLLM).values()) == [0, 5]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        # One rank's reset, hidden in a sum by the other's growth.
        ([(DRAFTS, "0", 10), (DRAFTS, "1", 10)], [(DRAFTS, "0", 2), (DRAFTS, "1", 99)], "fell"),
        ([(DRAFTS, "0", 10), (DRAFTS, "1", 10)], [(DRAFTS, "0", 12)], "disappeared"),
        ([(DRAFTS, "0", 10)], [(DRAFTS, "0", 12), (DRAFTS, "1", 5)], "appeared"),
        ([(START, "0", 1.0), (DRAFTS, "0", 1)], [(START, "0", 2.0), (DRAFTS, "0", 9)], "restart"),
        ([(ACCEPTED, "0", 1)], [(ACCEPTED, "0", math.nan)], "not finite"),
        ([(ACCEPTED, "0", 1)], [(ACCEPTED, "0", math.inf)], "not finite"),
    ],
)
def test_a_window_over_changed_processes_is_invalid(
    before: list[tuple[str, str, float]], after: list[tuple[str, str, float]], message: str
) -> None:
    with pytest.raises(NotMeasured, match=message):
        window.deltas(scrape(*before), scrape(*after), VLLM)


def test_scrape_survives_its_json_form() -> None:
    original = scrape((DRAFTS, "0", 10.0))
    assert Scrape.from_json(original.as_json()) == original


def test_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean vllm"):
        load("vlm")
