"""Every adapter against a fake of each documented release, whose true acceptance is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.measuring import measured, run
from tests.fakes.dialects import DIALECTS
from tests.fakes.speculating import SpeculatingServer
from utils.acceptance import measure as instrument
from utils.acceptance import meter, preflight

BY_DELIVERED_TOKENS = {
    "sglang-0.5.13",
    "sglang-0.5.18",
    "sglang-underscore",
    "dynamo-sglang-0.8",
    "openai",
}
SOURCES = {
    "trt-iterations": "iteration statistics",
    "atom-debug": "/debug/mtp_stats",
    "openai": "stream chunks",
    "sglang-0.5.23": "requests' own figures",
    "sglang-meta-0.5.6": "requests' own figures",
    "sglang-meta-0.5.11": "requests' own figures",
}


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instrument, "SETTLE_DEADLINE_S", 2.0)
    monkeypatch.setattr(instrument, "FLUSH_PATIENCE_S", 0.5)
    monkeypatch.setattr(meter, "SETTLE_INTERVAL_S", 0.05)
    monkeypatch.setattr(preflight, "PROBE_DEADLINE_S", 1.0)


def arguments(dialect: str, server: SpeculatingServer) -> list[str]:
    if dialect == "openai":
        return ["--metrics", "none"]
    if not dialect.startswith("dynamo"):
        return []
    workers = [f"{server.base_url}/worker/{k}/metrics" for k in range(len(server.state.ranks))]
    return [word for url in workers for word in ("--metrics-url", url)]


@pytest.mark.parametrize("used", [0, 1000])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_truth_is_recovered_in_every_dialect(
    dialect: str, used: int, prompts: Path, tmp_path: Path
) -> None:
    ranks = 2 if dialect.startswith("dynamo") and "trt" not in dialect else 1
    with SpeculatingServer(dialect=dialect, used=used, ranks=ranks).running() as server:
        more = arguments(dialect, server)
        status, record = run(
            server, prompts, tmp_path / "al.json", "--no-gate", "--engines", str(ranks), *more
        )
    assert status == 0, record["error"]
    assert record["verify_steps"] == server.steps
    if dialect in BY_DELIVERED_TOKENS:
        # What the last step of a request lost at the cap can't be seen: 12 requests of 41 tokens.
        assert record["accepted_tokens"] == 12 * 40 - server.steps
        assert 0 <= server.accepted - record["accepted_tokens"] <= 12 * server.n
    else:
        assert record["accepted_tokens"] == server.accepted
    assert record["metric_source"] == SOURCES.get(dialect, "counters")
    assert record["quantity"]
    # The fake shares our core, so the client may well be the bottleneck here.
    unsure = {c["name"] for c in record["checks"] if c["ok"] is False} - {"client_keeps_up"}
    assert unsure <= {"traffic_is_countable", "prefix_caching_off"}


@pytest.mark.parametrize("dialect", ["sglang-0.5.13", "sglang-0.5.23"])
def test_a_head_of_which_nothing_is_accepted_measures_exactly_one(
    dialect: str, prompts: Path, tmp_path: Path
) -> None:
    status, record = measured((), prompts, tmp_path / "al.json", accept=0.0, dialect=dialect)
    assert record["acceptance_length"] == 1.0
    assert status == 1


@pytest.mark.parametrize(
    ("dialect", "faults", "words"),
    [
        ("sglang-0.5.23", ["spec_off"], "does this server speculate"),
        ("sglang-0.5.23", ["foreign"], "server_requests_equal_ours"),
        ("sglang-0.5.13", ["foreign"], "server_requests_equal_ours"),
        ("sglang-0.5.23", ["lossy"], "speculative_accept_threshold_acc=0.9"),
        ("sglang-0.5.23", ["adaptive"], "draft_length_is_fixed: .*speculative_adaptive"),
        ("sglang-0.5.23", ["reset"], "the server restarted"),
        ("sglang-0.5.23", ["drift"], "counters still move"),
        ("sglang-0.5.23", ["json_metrics"], "instead of Prometheus text"),
        ("trt-iterations", ["iterations_off"], "enable_iter_perf_stats"),
        ("trt-iterations", ["spec_off"], "does this server speculate"),
        ("trt-iterations", ["iterations_missed"], "5 iterations of the window were not seen"),
        ("trt-iterations", ["foreign"], "server_requests_equal_ours"),
        ("trt-iterations", ["drift"], "counters still move"),
        ("trt-counters", ["spec_off"], "does this server speculate|has no counters of trt"),
        ("trt-counters", ["foreign"], "server_requests_equal_ours"),
        ("trt-counters", ["reset"], "the server restarted"),
        ("atom", ["stale"], "metrics_last_refresh_timestamp_seconds stands still"),
        ("atom", ["spec_off"], "does this server speculate|lacks atom:mtp_decode_steps_total"),
        ("atom", ["foreign"], "server_requests_equal_ours"),
        ("atom", ["busy"], "did not come to rest"),
        ("atom-debug", ["spec_off"], "speculation is off"),
        ("llamacpp", ["imprecise"], "rounds its values"),
        ("llamacpp", ["spec_off"], "has no counters of llamacpp.*--metrics"),
        ("llamacpp", ["foreign"], "server_generated_tokens_equal_ours"),
        ("vllm-api-servers", ["reset"], "the server restarted"),
        ("vllm-ray", ["nan"], "isn't finite"),
        ("vllm-rust", ["per_pos"], "accepted_equals_per_position_sum"),
        ("openai", ["merged"], "chunks were merged"),
    ],
)
def test_faults_have_names_in_every_dialect(
    dialect: str, faults: list[str], words: str, prompts: Path, tmp_path: Path
) -> None:
    more = ("--metrics", "none") if dialect == "openai" else ()
    status, record = measured(faults, prompts, tmp_path / "al.json", *more, dialect=dialect)
    assert status == 3
    assert re.search(words, record["error"], re.DOTALL), record["error"]
    assert record["reason"]


@pytest.mark.parametrize("dialect", ["dynamo-vllm", "dynamo-sglang-0.8", "dynamo-trt-0.7"])
def test_dynamos_front_end_alone_is_refused_with_the_remedy(
    dialect: str, prompts: Path, tmp_path: Path
) -> None:
    status, record = measured((), prompts, tmp_path / "al.json", dialect=dialect)
    assert status == 3
    assert record["reason"] == "front_end"
    assert "DYN_SYSTEM_PORT" in record["error"]


def test_a_worker_without_series_is_named(prompts: Path, tmp_path: Path) -> None:
    with SpeculatingServer(dialect="dynamo-vllm", ranks=1).running() as server:
        urls = [f"{server.base_url}/worker/{k}/metrics" for k in (0, 1)]
        more = [word for url in urls for word in ("--metrics-url", url)]
        status, record = run(server, prompts, tmp_path / "al.json", "--engines", "2", *more)
    assert status == 3
    assert "/worker/1/metrics shows no series of a decode worker" in record["error"]


def test_all_ranks_of_sglang_must_be_there(prompts: Path, tmp_path: Path) -> None:
    status, record = measured(
        (), prompts, tmp_path / "al.json", "--engines", "4", dialect="sglang-0.5.23", ranks=2
    )
    assert status == 3
    assert "2 engines show metrics, 4 are expected" in record["error"]


def test_streams_alone_measure_no_method_that_drafts_only_sometimes(
    prompts: Path, tmp_path: Path
) -> None:
    more = ("--metrics", "none", "--spec-method", "ngram")
    status, record = measured((), prompts, tmp_path / "al.json", *more, dialect="openai")
    assert status == 3
    assert record["reason"] == "no_instrument"


def test_requests_own_figures_do_without_metrics(prompts: Path, tmp_path: Path) -> None:
    more = ("--metrics", "none", "--no-gate")
    with SpeculatingServer(dialect="vllm-0.29").running() as server:
        status, record = run(server, prompts, tmp_path / "al.json", *more)
    assert status == 0
    assert record["metric_source"] == "requests' own figures"
    assert (record["verify_steps"], record["accepted_tokens"]) == (server.steps, server.accepted)
    assert record["estimate"]["per_position"]
    assert record["raw"]["before"]["samples"] == []


def test_timings_of_llamacpp_are_labelled_as_a_lower_bound(prompts: Path, tmp_path: Path) -> None:
    more = ("--metrics", "none", "--no-gate")
    _, record = measured((), prompts, tmp_path / "al.json", *more, dialect="llamacpp")
    assert "lower bound" in record["quantity"]


def test_half_of_the_requests_own_figures_are_not_used(prompts: Path, tmp_path: Path) -> None:
    _, record = measured(
        ("no_figures",), prompts, tmp_path / "al.json", "--no-gate", dialect="sglang-0.5.23"
    )
    assert record["metric_source"] == "counters"


@pytest.mark.parametrize(
    ("dialect", "by"),
    [
        ("vllm-0.10", "has vllm:"),
        ("sglang-0.5.23", "has sglang:"),
        ("trt-iterations", "JSON list of iterations"),
        ("atom", "has atom:"),
        ("llamacpp", "has llamacpp:"),
    ],
)
def test_auto_recognises_the_engine_and_says_by_what(
    dialect: str, by: str, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SpeculatingServer(dialect=dialect).running() as server:
        status, record = run(server, prompts, tmp_path / "al.json", "--no-gate", "--engine", "auto")
    assert status == 0
    assert record["framework"] == DIALECTS[dialect].engine
    assert by in record["server"]["recognised_by"]
    assert f"engine: {DIALECTS[dialect].engine}" in capsys.readouterr().out


def test_auto_recognises_a_dynamo_worker(prompts: Path, tmp_path: Path) -> None:
    with SpeculatingServer(dialect="dynamo-sglang-0.8").running() as server:
        more = arguments("dynamo", server)
        _, record = run(
            server, prompts, tmp_path / "al.json", "--no-gate", "--engine", "auto", *more
        )
    assert record["framework"] == "dynamo-sglang"


def test_a_server_that_auto_does_not_know_leaves_a_record(prompts: Path, tmp_path: Path) -> None:
    with SpeculatingServer(dialect="openai").running() as server:
        status, record = run(server, prompts, tmp_path / "al.json", "--engine", "auto")
    assert status == 3
    assert record["reason"] == "unknown_engine"
