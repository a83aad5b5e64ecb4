from __future__ import annotations

from typing import Any, ClassVar

import pytest

from utils.errors import NotMeasured
from utils.evals import score_files

METRIC = "exact_match,strict-match"


def data(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "results": {"t": {"alias": "t", METRIC: 0.9, "exact_match,flexible-extract": 0.95}},
        "n-samples": {"t": {"original": 10, "effective": 10}},
        "config": {"model_args": {"model": "m", "num_concurrent": 4}, "limit": None},
        "date": 1796119200.5,
        "lm_eval_version": "0.4.13",
    }
    return {**base, **changes}


def read(name: str = "results.json", **changes: Any) -> score_files.ScoreFile:
    return score_files.read(name, data(**changes))


def refused(name: str = "results.json", **changes: Any) -> str:
    with pytest.raises(NotMeasured) as caught:
        read(name, **changes)
    return caught.value.reason


@pytest.mark.parametrize(
    ("content", "yes"),
    [
        (data(), True),
        ({"results": {}, "config": {}}, True),
        ({"results": {}, "configs": {}}, True),
        ({"results": {}, "n-samples": {}}, True),
        ({"results": {}}, False),
        ({"config": {}, "lm_eval_version": "1"}, False),
        ([], False),
        ("results", False),
        (None, False),
    ],
)
def test_recognised_by_content(content: Any, yes: bool) -> None:
    assert score_files.is_score_file(content) is yes


@pytest.mark.parametrize(
    ("args", "name", "conc"),
    [
        ({"num_concurrent": 4}, "results.json", 4),
        ({"num_concurrent": "4"}, "results_t_conc4.json", 4),
        ("model=m,num_concurrent=32,timeout=9", "results.json", 32),
        ("num_concurrent=32", "results.json", 32),
        ({}, "results_t_conc16.json", 16),
        (None, "results_t_conc16_2026-01-01.json", 16),
    ],
)
def test_concurrency(args: Any, name: str, conc: int) -> None:
    assert read(name, config={"model_args": args}).concurrency == conc


@pytest.mark.parametrize(
    ("args", "name", "reason"),
    [
        ({"num_concurrent": 4}, "results_conc5.json", "concurrency_mismatch"),
        ("num_concurrent=32", "results_conc3.json", "concurrency_mismatch"),
        ({}, "results.json", "unknown_concurrency"),
        ({"num_concurrent": "many"}, "results.json", "unknown_concurrency"),
        ({"num_concurrent": 0}, "results.json", "unknown_concurrency"),
        ({"num_concurrent": -1}, "results.json", "unknown_concurrency"),
        ({"num_concurrent": True}, "results.json", "unknown_concurrency"),
        ("old_num_concurrent=32", "results.json", "unknown_concurrency"),
        (None, "results_concurrent4.json", "unknown_concurrency"),
    ],
)
def test_concurrency_unknown(args: Any, name: str, reason: str) -> None:
    assert refused(name, config={"model_args": args}) == reason


@pytest.mark.parametrize("config", [None, [], "x"])
def test_config_of_another_shape(config: Any) -> None:
    assert refused(config=config) == "unknown_concurrency"


@pytest.mark.parametrize("results", [{}, [], None, {"t": 0.9}])
def test_results_of_another_shape(results: Any) -> None:
    assert refused(results=results) == "wrong_shape"


@pytest.mark.parametrize(
    ("date", "started"),
    [
        (1.5, 1.5),
        (2, 2.0),
        (0, 0.0),
        (253_402_300_799, 253_402_300_799.0),  # 9999-12-31T23:59:59Z
        (253_402_300_800, None),
        (-1, None),
        ("1.5", None),
        (None, None),
        (True, None),
    ],
)
def test_start_time(date: Any, started: float | None) -> None:
    assert read(date=date).started == started


def test_groups_are_no_tasks() -> None:
    results = {"t": {METRIC: 0.9}, "all": {METRIC: 0.9}}
    assert read(results=results, groups={"all": {}}).tasks == ["t"]


@pytest.mark.parametrize("value", [0, 0.0, 0.5, 1, 1.0])
def test_score(value: float) -> None:
    assert score_files.score(read(results={"t": {METRIC: value}}), "t", METRIC) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (True, "wrong_shape"),
        ("0.9", "wrong_shape"),
        ("N/A", "wrong_shape"),
        (None, "wrong_shape"),
        ([0.9], "wrong_shape"),
        (1.0001, "impossible"),
        (95.1, "impossible"),
        (-0.1, "impossible"),
        (float("nan"), "impossible"),
        (float("inf"), "impossible"),
    ],
)
def test_what_is_no_score(value: Any, reason: str) -> None:
    with pytest.raises(NotMeasured) as caught:
        score_files.score(read(results={"t": {METRIC: value}}), "t", METRIC)
    assert caught.value.reason == reason


def test_a_missing_metric_names_those_that_are_there() -> None:
    with pytest.raises(NotMeasured, match="exact_match,flexible-extract") as caught:
        score_files.score(read(), "t", "acc,none")
    assert caught.value.reason == "missing_metric"


def test_other_extractions() -> None:
    row = {METRIC: 0.9, "exact_match,flexible-extract": 0.95, "exact_match,x": "N/A", "acc,none": 1}
    found = score_files.other_extractions(read(results={"t": row}), "t", METRIC)
    assert found == {"flexible-extract": 0.95}


@pytest.mark.parametrize("whole", [None, 10])
def test_all_samples(whole: int | None) -> None:
    assert score_files.check_samples(read(), "t", whole) == 10


def test_a_task_may_have_a_single_document() -> None:
    file = read(**{"n-samples": {"t": {"original": 1, "effective": 1}}})
    assert score_files.check_samples(file, "t", None) == 1


@pytest.mark.parametrize(
    ("changes", "whole", "reason"),
    [
        ({"n-samples": {"t": {"original": 10, "effective": 9}}}, None, "partial"),
        ({"n-samples": {"t": {"original": 9, "effective": 10}}}, 10, "partial"),
        ({}, 1319, "partial"),
        ({"config": {"model_args": {"num_concurrent": 4}, "limit": 10}}, None, "partial"),
        ({"config": {"model_args": {"num_concurrent": 4}, "limit": 0.5}}, 10, "partial"),
        ({"n-samples": None}, 10, "no_counts"),
        ({"n-samples": {}}, 10, "no_counts"),
        ({"n-samples": {"t": 10}}, 10, "no_counts"),
        ({"n-samples": {"t": {"original": 10}}}, 10, "no_counts"),
        ({"n-samples": {"t": {"original": "10", "effective": "10"}}}, 10, "no_counts"),
        ({"n-samples": {"t": {"original": True, "effective": True}}}, 1, "no_counts"),
        ({"n-samples": {"t": {"original": 0, "effective": 0}}}, None, "no_counts"),
    ],
)
def test_not_all_samples(changes: Any, whole: int | None, reason: str) -> None:
    with pytest.raises(NotMeasured) as caught:
        score_files.check_samples(read(**changes), "t", whole)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("result", "log"),
    [
        ("results_t_conc4.json", "samples_t_conc4.jsonl"),
        ("m/results_t_conc4.json", "m/samples_t_conc4.jsonl"),
        ("results_2026-01-01T00-00-00.5.json", "samples_t_2026-01-01T00-00-00.5.jsonl"),
        ("results_2026-01-01_conc4.json", "samples_t_2026-01-01_conc4.jsonl"),
    ],
)
def test_a_log_is_named_after_its_result(result: str, log: str) -> None:
    assert score_files.samples_log(result, "t", set()) is None
    assert score_files.samples_log(result, "t", {"other.jsonl", log}) == log
    assert score_files.samples_log(f"elsewhere/{result}", "t", {log}) is None


class TestProtocol:
    """What must be equal for two points of a task to be compared."""

    base: ClassVar[dict[str, Any]] = {
        "config": {"model_args": {"num_concurrent": 4}, "gen_kwargs": {"temperature": 0.0}},
        "configs": {"t": {"generation_kwargs": {"until": ["a"]}, "metadata": {"x": 1}}},
        "n-shot": {"t": 5},
        "task_hashes": {"t": "f3"},
        "chat_template_sha": "aa",
        "system_instruction_sha": None,
    }

    def of(self, **changes: Any) -> Any:
        return read(**{**self.base, **changes}).protocol["t"]

    def test_concurrency_and_metadata_are_not_of_it(self) -> None:
        other = {"t": {"generation_kwargs": {"until": ["a"]}, "metadata": {"x": 2}}}
        config = {**self.base["config"], "model_args": {"num_concurrent": 8}}
        assert self.of() == self.of(configs=other, config=config)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            (
                {"config": {"model_args": {"num_concurrent": 4}, "gen_kwargs": None}},
                "gen_kwargs {'temperature': 0.0}, not None",
            ),
            (
                {"configs": {"t": {"generation_kwargs": {"until": ["b"]}}}},
                "generation_kwargs {'until': ['a']}, not {'until': ['b']}",
            ),
            ({"configs": None}, "generation_kwargs {'until': ['a']}, not None"),
            ({"n-shot": {"t": 0}}, "n-shot 5, not 0"),
            ({"task_hashes": {}}, "task_hash f3, not None"),
            ({"chat_template_sha": "bb"}, "chat_template_sha aa, not bb"),
            ({"system_instruction_sha": "cc"}, "system_instruction_sha None, not cc"),
        ],
    )
    def test_all_else_is(self, changes: Any, said: str) -> None:
        assert score_files.protocol_difference(self.of(), self.of(**changes)) == said
