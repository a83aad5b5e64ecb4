"""The target as its own draft on the real engine: everything is accepted, nothing said changes.

Two clients of the serving benchmark measure it too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.launched import Finished
from tests.engine.oracle import N, by_three_instruments, measure
from tests.engine.server import MODEL, Embedded, Server, serve, speculative
from tests.engine.test_aiperf import require_aiperf
from utils import records
from utils.acceptance.meter import get
from utils.acceptance.tally import BY_REQUESTS, BY_STREAM
from utils.acceptance.window import local_session
from utils.recipes import lossless
from utils.serving import bench, greedy
from utils.verdicts import Outcome

SAME = 0.03
REQUESTS = 12


@pytest.fixture(scope="module")
def self_draft(engine: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    arguments = speculative(
        method="draft_model", model=str(engine.model_path), num_speculative_tokens=N
    )
    with serve(engine, tmp_path_factory.mktemp("self"), arguments) as server:
        yield server


def test_target_as_its_own_draft_is_always_accepted(
    self_draft: Server, prompts: Path, tmp_path: Path
) -> None:
    _, record = measure(self_draft, prompts, tmp_path / "al.json", "--no-gate")
    assert record["error"] is None
    assert record["acceptance_length"] == N + 1
    assert record["estimate"]["per_position"] == [1.0] * N
    assert record["speculation"]["method"] == "draft_model"
    al = [1 + accepted / steps for accepted, steps in by_three_instruments(record)]
    assert al == pytest.approx([N + 1] * 3, rel=1e-3)


@pytest.mark.alone
def test_streams_alone_find_the_same_acceptance_length(
    self_draft: Server, prompts: Path, tmp_path: Path
) -> None:
    """As behind a router that hides /metrics: nothing is read but the answers."""
    _, full = measure(self_draft, prompts, tmp_path / "full.json", "--no-gate")
    _, blind = measure(self_draft, prompts, tmp_path / "al.json", "--no-gate", "--metrics", "none")
    assert blind["error"] is None
    assert blind["raw"]["before"]["samples"] == blind["raw"]["after"]["samples"] == []
    assert (full["metric_source"], blind["metric_source"]) == ("counters", BY_REQUESTS)
    unknown = ("--metrics", "none", "--engine", "openai", "--spec-method", "draft_model")
    _, openai = measure(self_draft, prompts, tmp_path / "al.json", "--no-gate", *unknown)
    assert openai["error"] is None
    assert openai["metric_source"] == BY_STREAM
    found = [r["acceptance_length"] for r in (full, blind, openai)]
    assert found == pytest.approx([N + 1] * 3, rel=1e-3)


def test_the_self_draft_is_lossless(
    base: Finished, self_draft: Server, prompts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "greedy.json"
    greedy.main(
        [
            *("--base-url", self_draft.base_url, "--model", MODEL, "--model-prefix", "smollm2"),
            *("--spec-method", "draft_model", "--prompts-dir", str(prompts.parent)),
            *("--output", str(output)),
        ]
    )
    speculated = lossless.read(output)
    _, verdict = lossless.judge(lossless.read(base.results / greedy.FILE), speculated)
    assert verdict.outcome is Outcome.PASS, verdict.line()
    # All but a draft or two that a numeric tie tips over.
    assert 0.99 * N * speculated["steps"] <= speculated["accepted"] <= N * speculated["steps"]


def serving(server: Server, engine: Embedded, prompts: Path, output: Path, client: str) -> Any:
    """The record, and the server's own mean latency of the same requests, warm-up left out."""
    served: list[tuple[float, float]] = []
    send = bench._run

    def framed(*arguments: Any) -> Any:
        served.append(latencies(server))
        found = send(*arguments)
        deadline = time.monotonic() + 10
        while latencies(server)[1] < served[0][1] + REQUESTS and time.monotonic() < deadline:
            time.sleep(0.1)
        served.append(latencies(server))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "_run", framed)
        status = bench.main(
            [
                *("--base-url", server.base_url, "--model", MODEL, "--model-prefix", "smollm2"),
                *("--prompts-dir", str(prompts.parent), "--isl", "64", "--osl", "96"),
                *("--concurrency", "2", "--prompts-per-slot", str(REQUESTS // 2)),
                *("--client", client, "--tokenizer", str(engine.model_path)),
                *("--output", str(output)),
            ]
        )
    assert status == 0
    seconds, requests = (after - before for before, after in zip(*served, strict=True))
    assert requests == REQUESTS
    return records.read_json(output), seconds / requests


def latencies(server: Server) -> tuple[float, float]:
    """(seconds, requests) by the server's own histogram."""
    text = get(local_session(), f"{server.base_url}/metrics").text
    totals = dict.fromkeys(("_sum", "_count"), 0.0)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            end = sample.name.removeprefix("vllm:e2e_request_latency_seconds")
            if end in totals:
                totals[end] += sample.value
    return totals["_sum"], totals["_count"]


@pytest.mark.alone
def test_our_client_and_aiperf_agree(
    self_draft: Server, engine: Embedded, prompts: Path, tmp_path: Path
) -> None:
    """On tokens with each other; on latency with the server, as no two runs are equally fast."""
    require_aiperf()
    totals = []
    for client in bench.CLIENTS:
        output = tmp_path / f"{client}.json"
        found, latency_s = serving(self_draft, engine, prompts, output, client)
        assert found["client"] == client
        assert found["e2e_s"]["mean"] == pytest.approx(latency_s, rel=SAME)
        totals.append((found["total_input_tokens"], found["total_output_tokens"]))
    assert totals[1] == pytest.approx(totals[0], rel=SAME)
