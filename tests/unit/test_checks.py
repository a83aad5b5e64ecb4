"""Each check alone: what breaks it, what doesn't, and whether it invalidates the AL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from utils.acceptance import arithmetic, checks, outputs
from utils.acceptance.checks import Asked, Readback
from utils.acceptance.client import Pace
from utils.acceptance.engines import Counts
from utils.acceptance.stream import Answer
from utils.acceptance.tally import BY_STREAM, Tally
from utils.evals import al_record

ASKED = Asked(draft_length=3, method="eagle3", thinking="off", prompts=2, output_len=64)
# Two requests: a prefill token, then steps that accept 3, 0, 1 drafts.
COUNTS = Counts(
    steps=6,
    accepted=8,
    drafted=18,
    per_position=(4, 2, 2),
    requests=2,
    prompt_tokens=20,
    generated_tokens=16,
)
TALLY = Tally(COUNTS, "counters", "AL", COUNTS, None, None)


def answers(**changes: Any) -> list[Answer]:
    one = Answer(
        id="q",
        ok=True,
        prompt_tokens=10,
        completion_tokens=8,
        chunks=4,
        chunk_tokens=[1, 4, 1, 2],
        text="some text",
    )
    return [replace(one, **changes) for _ in range(2)]


def failing(
    counts: Counts = COUNTS,
    readback: Readback = Readback(),  # noqa: B008
    pace: Pace | None = None,
    asked: Asked = ASKED,
    source: str = "counters",
    own: Counts | None = None,
    **answer: Any,
) -> dict[str, bool]:
    """Failed checks by name: whether they invalidate the AL."""
    tally = replace(TALLY, counts=counts, by_counters=counts, by_requests=own, source=source)
    rows = answers(**answer)
    found = [
        *checks.run(asked, counts, rows, readback, pace),
        *arithmetic.run(asked, tally, rows, readback.drafts_per_step),
        *outputs.run(asked, rows),
    ]
    return {check.name: check.fatal for check in found if check.ok is False}


def test_a_sound_window_passes_all() -> None:
    assert failing() == {}


def count(**changes: Any) -> Counts:
    return replace(COUNTS, **changes)


@pytest.mark.parametrize(
    ("counts", "broken"),
    [
        (count(requests=3), {"server_requests_equal_ours"}),
        (count(generated_tokens=17), {"server_generated_tokens_equal_ours"}),
        (count(prompt_tokens=21), {"server_prompt_tokens_equal_ours"}),
        (count(per_position=(4, 2, 1)), {"accepted_equals_per_position_sum"}),
        (count(per_position=(3, 2, 3)), {"positions_do_not_increase"}),
        (count(per_position=(7, 1, 0)), {"positions_do_not_increase"}),
        (count(drafted=19), {"drafted_tokens"}),
        (count(drafted=7), {"drafted_tokens"}),
        (
            count(accepted=19, drafted=None, per_position=None),
            {"range", "tokens_add_up", "stream_agrees"},
        ),
        (count(steps=13, drafted=39), {"tokens_add_up"}),
    ],
)
def test_wrong_counts_invalidate(counts: Counts, broken: set[str]) -> None:
    assert broken <= {name for name, fatal in failing(counts).items() if fatal}


@pytest.mark.parametrize(
    "unknown", ["drafted", "per_position", "requests", "prompt_tokens", "generated_tokens"]
)
def test_what_an_engine_does_not_say_breaks_nothing(unknown: str) -> None:
    assert failing(count(**{unknown: None})) == {}


def test_traffic_that_nobody_counts_is_a_warning() -> None:
    found = failing(count(requests=None, generated_tokens=None))
    assert found == {"traffic_is_countable": False}


def test_fewer_drafts_than_n_a_step_are_a_warning_unless_the_method_is_lookup() -> None:
    assert failing(count(drafted=17)) == {"drafted_tokens": False}
    assert failing(count(drafted=17), asked=replace(ASKED, method="ngram")) == {}


def test_a_record_remembers_the_size_of_a_tree() -> None:
    assert al_record.readback_of({"server": {"drafts_per_step": 7}}).drafts_per_step == 7
    assert al_record.readback_of({"server": {}}).drafts_per_step is None


def test_a_step_of_a_tree_drafts_more_than_its_depth() -> None:
    tree = Readback(drafts_per_step=5)
    assert failing(count(drafted=30), tree) == {}
    assert failing(count(drafted=31), tree) == {"drafted_tokens": True}
    assert failing(count(drafted=18), tree) == {"drafted_tokens": False}


def test_merged_chunks_warn_and_too_few_steps_invalidate() -> None:
    # Merged: the server took more steps than there were chunks.
    assert failing(chunks=3, chunk_tokens=[1, 3, 4]) == {
        "stream_agrees": False,
        "stream_steps_agree": False,
    }
    # More accepted than the chunks have room for can't be merging.
    few = count(steps=4, accepted=15, drafted=None, per_position=None)
    assert failing(few)["stream_agrees"]


def test_merged_chunks_invalidate_where_the_stream_is_all_there_is() -> None:
    assert failing(source=BY_STREAM, chunk_tokens=[1, 5, 1, 1])["stream_agrees"]
    assert not failing(source=BY_STREAM, chunk_tokens=None)["stream_agrees"]
    assert failing(source=BY_STREAM) == {}


OWN = Counts(steps=6, accepted=8)


def test_requests_own_figures_must_equal_the_counters() -> None:
    name = "requests_own_figures_equal_counters"
    assert failing(own=OWN) == {}
    assert failing(own=replace(OWN, accepted=9)) == {name: True}
    assert failing(own=replace(OWN, steps=7)) == {name: True}
    assert failing(own=replace(OWN, steps=7, all_steps=True)) == {}
    cut = count(delivered_only=True)
    assert failing(cut, own=replace(OWN, accepted=14)) == {}
    assert failing(cut, own=replace(OWN, accepted=15)) == {name: True}
    assert failing(cut, own=replace(OWN, accepted=7)) == {name: True}


def test_what_the_server_said() -> None:
    assert failing(readback=Readback(varying=("adaptive",))) == {"draft_length_is_fixed": True}
    assert failing(readback=Readback(prefix_caching=True)) == {"prefix_caching_off": False}
    al = 1 + 8 / 6
    assert failing(readback=Readback(forced_lengths=(al * 1.004,))) == {"not_a_forced_value": True}
    assert failing(readback=Readback(forced_lengths=(al * 1.01,))) == {}


@pytest.mark.parametrize(
    "changes", [{"reached_concurrency": 1}, {"loop_lag_s": 0.3}, {"cpu_share": 0.95}]
)
def test_a_client_that_is_the_bottleneck_is_a_warning(changes: dict[str, Any]) -> None:
    pace = Pace(4, reached_concurrency=2, duration_s=1.0)
    assert failing(pace=pace) == {}
    assert failing(pace=replace(pace, **changes)) == {"client_keeps_up": False}


@pytest.mark.parametrize(
    ("answer", "thinking", "broken"),
    [
        ({"text": "", "completion_tokens": 8}, "off", {"outputs_not_empty": True}),
        ({"text": "", "tool_calls": "f{}"}, "off", {}),
        ({"reasoning": "hm"}, "off", {"thinking_seen": True}),
        ({"text": "<think>hm"}, "off", {"thinking_seen": True}),
        ({}, "on", {"thinking_seen": True}),
        ({"reasoning": "hm"}, "on", {}),
        ({"text": "la " * 200}, "off", {"outputs_not_degenerate": False}),
        ({"ok": False, "error": "x"}, "off", {"all_requests_succeeded": True}),
    ],
)
def test_outputs(answer: dict[str, Any], thinking: str, broken: dict[str, bool]) -> None:
    found = failing(asked=replace(ASKED, thinking=thinking), **answer)
    assert broken.items() <= found.items()
    assert bool(broken) == bool(found)
