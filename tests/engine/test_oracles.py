"""Drafters whose acceptance length is known beforehand, on the real engine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.oracle import N, by_three_instruments, measure
from tests.engine.server import Embedded, Server, serve, speculative
from tests.perf import al_eval
from utils.evals import al_record, speedbench_al


@pytest.fixture
def random_head(engine: Embedded, tmp_path: Path) -> Iterator[Server]:
    head, script = tmp_path / "head", Path(__file__).with_name("make_random_eagle3.py")
    subprocess.run([engine.python, script, engine.model_path, head], check=True)
    arguments = speculative(method="eagle3", model=str(head), num_speculative_tokens=N)
    with serve(engine, tmp_path, arguments) as server:
        yield server


def test_random_eagle3_head_is_red_as_an_inactive_drafter(
    random_head: Server, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, record = measure(random_head, prompts, tmp_path / "al.json")
    assert record["acceptance_length"] == 1.0
    assert record["error"] is None
    al = [1 + accepted / steps for accepted, steps in by_three_instruments(record)]
    assert al == pytest.approx([1.0] * 3, rel=1e-3)
    assert status == 1
    assert "drafter_inactive" in capsys.readouterr().out


@pytest.fixture
def without_metrics(engine: Embedded, tmp_path: Path) -> Iterator[Server]:
    arguments = speculative(method="ngram", num_speculative_tokens=N, prompt_lookup_max=4)
    # vLLM refuses per-request metrics without log stats: the first two words alone.
    with serve(engine, tmp_path, [*arguments[:2], "--disable-log-stats"]) as server:
        yield server


def test_disabled_metrics_are_not_measured_and_say_how_to_enable_them(
    without_metrics: Server, prompts: Path, tmp_path: Path
) -> None:
    status, record = measure(without_metrics, prompts, tmp_path / "al.json")
    assert status == 3
    assert "--disable-log-stats" in record["error"]
    assert record["acceptance_length"] is None


@pytest.fixture
def two_ranks(engine: Embedded, tmp_path: Path) -> Iterator[Server]:
    arguments = speculative(
        method="ngram", num_speculative_tokens=N, prompt_lookup_min=2, prompt_lookup_max=4
    )
    with serve(engine, tmp_path, [*arguments, "--data-parallel-size", "2"]) as server:
        yield server


def test_data_parallel_ranks_are_summed_and_counted(
    two_ranks: Server, prompts: Path, tmp_path: Path
) -> None:
    status, record = measure(two_ranks, prompts, tmp_path / "one.json", "--no-gate")
    assert status == 3
    assert "2 engines" in record["error"]
    _, record = measure(two_ranks, prompts, tmp_path / "two.json", "--no-gate", "--engines", "2")
    assert record["error"] is None
    counters, own, _ = by_three_instruments(record)
    assert own == counters
    drafts = [
        row["value"]
        for row in record["raw"]["after"]["samples"]
        if row["name"].endswith("spec_decode_num_drafts_total")
    ]
    assert len(drafts) == 2
    assert all(drafts), "one rank alone did the work: the test proves nothing"


@pytest.fixture(scope="module")
def ngram(engine: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    arguments = speculative(
        method="ngram", num_speculative_tokens=N, prompt_lookup_min=2, prompt_lookup_max=4
    )
    with serve(engine, tmp_path_factory.mktemp("ngram"), arguments) as server:
        yield server


def test_ngram_accepted_tokens_agree_by_three_instruments(
    ngram: Server, prompts: Path, tmp_path: Path
) -> None:
    _, record = measure(ngram, prompts, tmp_path / "al.json", "--no-gate")
    assert record["error"] is None
    counters, own, _ = by_three_instruments(record)
    assert own == counters
    rows, merged = record["raw"]["requests"], 0
    for row in rows:
        # A request's last step is cut where the output ends; the verifier counts it whole.
        overshoot = row["spec"]["accepted"] - (row["completion_tokens"] - row["chunks"])
        assert overshoot <= N, row["id"]
        merged += overshoot < 0  # a server that is held up sends two steps as one chunk
        assert sum(row["chunk_tokens"]) == row["completion_tokens"]
        whole = row["chunk_tokens"][1:-1]
        assert row["spec"]["steps"] >= sum(size > 1 for size in whole)
    assert 2 * merged <= len(rows)


def test_an_honest_run_may_stop_before_its_last_prompt(
    ngram: Server, prompts: Path, tmp_path: Path
) -> None:
    """The golden is the committed one, with rows; this recipe's server, at temperature 0."""
    output = tmp_path / "al.json"
    whole = ("--num-prompts", "32", "--output-len", "129")
    status, record = measure(ngram, prompts, output, *whole, "--stop-early")
    assert (status, record["error"]) == (0, None)
    looks, sent = record["early"]["looks"], record["workload"]["requests"]
    assert (looks[-1]["outcome"] == "pass") == (sent < 32)
    assert sum(row["spec"]["steps"] for row in record["raw"]["requests"]) == record["verify_steps"]
    assert speedbench_al.main(["recheck", str(output)]) == 0


def test_vllm_itself_counts_the_same(
    engine: Embedded, ngram: Server, prompts: Path, tmp_path: Path
) -> None:
    """What `vllm bench serve` makes of the same counters, around the same requests."""
    ours, peer = al_eval.run_ours(ngram, prompts, 8), al_eval.run_peer(engine, ngram, tmp_path, 8)
    assert ours.drafts > 0
    assert (ours.drafts, ours.accepted) == (peer.drafts, peer.accepted)


def test_another_n_than_the_servers_is_refused_before_anything_is_sent(
    ngram: Server, prompts: Path, tmp_path: Path
) -> None:
    status, record = measure(ngram, prompts, tmp_path / "al.json", "--num-spec-tokens", "5")
    assert status == 3
    assert "N of the server is 3, asked for 5" in record["error"]
    assert record["raw"]["requests"] == []
    assert record["passed"] is False


def test_someone_elses_request_in_the_window_invalidates_it(
    ngram: Server, prompts: Path, tmp_path: Path
) -> None:
    _, record = measure(ngram, prompts, tmp_path / "al.json", "--no-gate")
    counters = {"vllm:request_success_total": 1, "vllm:generation_tokens_total": 8}
    for sample in record["raw"]["after"]["samples"]:
        if sample["labels"].get("finished_reason", "stop") == "stop":
            sample["value"] += counters.get(sample["name"], 0)
    _, _, derived = al_record.rederive(record)
    assert [check.name for check in derived.broken] == [
        "server_requests_equal_ours",
        "server_generated_tokens_equal_ours",
    ]


def test_recheck_agrees_with_what_was_written(
    ngram: Server, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(ngram, prompts, tmp_path / "al.json", "--no-gate")
    capsys.readouterr()
    speedbench_al.main(["recheck", str(tmp_path / "al.json")])
    assert "BROKEN" not in capsys.readouterr().out
