from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from utils.acceptance import window
from utils.acceptance.engines import load
from utils.acceptance.engines.vllm import ACCEPTED, DRAFTS
from utils.acceptance.exposition import Samples, Series
from utils.acceptance.meter import Meter
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
        ([(ACCEPTED, "0", 1)], [(ACCEPTED, "0", 4.4)], "whole number"),
    ],
)
def test_a_window_over_changed_processes_is_invalid(
    before: list[tuple[str, str, float]], after: list[tuple[str, str, float]], message: str
) -> None:
    with pytest.raises(NotMeasured, match=message):
        window.deltas(scrape(*before), scrape(*after), VLLM)


LAZY = replace(VLLM, lazy=frozenset({ACCEPTED}))


def test_a_lazy_series_counts_from_zero_if_the_process_is_the_same() -> None:
    before = scrape((DRAFTS, "0", 10), (START, "0", 1.0))
    after = scrape((DRAFTS, "0", 15), (START, "0", 1.0), (ACCEPTED, "0", 4))
    assert sorted(window.deltas(before, after, LAZY).values()) == [4, 5]
    with pytest.raises(NotMeasured, match="appeared"):
        window.deltas(before, after, VLLM)


def test_a_lazy_series_of_an_unproven_process_is_invalid() -> None:
    before, after = scrape((DRAFTS, "0", 10)), scrape((DRAFTS, "0", 15), (ACCEPTED, "0", 4))
    with pytest.raises(NotMeasured, match="appeared"):
        window.deltas(before, after, LAZY)
    with pytest.raises(NotMeasured, match="disappeared"):
        window.deltas(after, before, LAZY)


def test_the_kernel_is_a_witness_too() -> None:
    before = scrape((DRAFTS, "0", 10), (window.PROCESS, "0", 77))
    with pytest.raises(NotMeasured, match="a restart"):
        window.deltas(before, scrape((DRAFTS, "0", 11), (window.PROCESS, "0", 78)), VLLM)
    with pytest.raises(NotMeasured, match="disappeared"):
        window.deltas(before, scrape((DRAFTS, "0", 11)), VLLM)


def test_rounded_values_measure_nothing() -> None:
    rounds = replace(VLLM, exact_below=1e6)
    before, after = scrape((DRAFTS, "0", 999_000)), scrape((DRAFTS, "0", 1_000_010))
    assert window.deltas(before, after, VLLM)
    with pytest.raises(NotMeasured, match="rounds its values"):
        window.deltas(before, after, rounds)


def test_late_counters_are_waited_for_but_not_for_ever() -> None:
    pages = iter([1.0, 1.0, 1.0, 5.0, 5.0, 5.0])

    class Late(Meter):
        def scrape(self) -> Scrape:
            return scrape((DRAFTS, "0", next(pages)))

    late = Late(window.local_session(), (), load("vllm"), VLLM)
    found = late.settled(9.0, lambda samples: max(samples.values()) == 5.0, patience_s=9.0)
    assert list(found.samples.values()) == [5.0]
    pages = iter([1.0] * 20)
    found = late.settled(9.0, lambda _: False, patience_s=0.6)
    assert list(found.samples.values()) == [1.0]


def test_a_page_that_can_be_read_once_is_read_all_the_time_and_failures_are_not_lost() -> None:
    class Counting(Meter):
        reads = 0

        def scrape(self) -> Scrape:
            self.reads += 1
            if self.reads == 3:
                raise NotMeasured("somebody closed the door")
            return scrape((DRAFTS, "0", 1.0))

    once = replace(VLLM, poll_s=0.01)
    meter = Counting(window.local_session(), (), load("vllm"), once)
    with pytest.raises(NotMeasured, match="closed the door"), meter.polling():
        time.sleep(0.2)
    assert meter.reads == 3
    meter = Counting(window.local_session(), (), load("vllm"), VLLM)
    with meter.polling():
        time.sleep(0.05)
    assert meter.reads == 0


def test_scrape_survives_its_json_form() -> None:
    original = scrape((DRAFTS, "0", 10.0))
    assert Scrape.from_json(original.as_json()) == original


def test_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean vllm"):
        load("vlm")
