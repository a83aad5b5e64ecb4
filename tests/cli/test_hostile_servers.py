"""Servers that lie, break off or speak strangely: each gets a name, or its true figure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.cli.measuring import OWN, run
from tests.fakes import hostile
from tests.fakes.hostile import HostileServer
from tests.fakes.speculating import MODEL, SpeculatingServer
from utils import records
from utils.errors import NotMeasured, UsageError
from utils.evals import speedbench_al

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("short_patience")
TWICE = {"num_spec_steps": 1, "num_accepted_draft_tokens": 9, "num_draft_tokens": 3}
BELOW = {"num_spec_steps": -1, "num_accepted_draft_tokens": 0, "num_draft_tokens": 0}


@pytest.mark.parametrize(
    ("server", "reason", "words"),
    [
        ({"models": {"data": None}}, "other_model", "serves nothing"),
        ({"models": {}}, "other_model", "serves nothing"),
        ({"models": {"data": ["m"]}}, "wrong_shape", "/v1/models holds"),
        ({"models": {"data": [{"id": None}]}}, "other_model", "serves None"),
        ({"models": {"data": 5}}, "wrong_shape", "/v1/models holds"),
        (
            {"dialect": "trt-iterations", "scrape": hostile.json_of([{"iter": "one"}])},
            "wrong_shape",
            "/metrics holds what no engine says",
        ),
        (
            {"dialect": "atom-debug", "scrape": hostile.json_of({"enabled": True})},
            "scrape_failed",
            "/debug/mtp_stats holds what no engine says",
        ),
        (
            {
                "dialect": "sglang-0.5.23",
                "told": {"speculative_algorithm": "EAGLE3", "speculative_num_draft_tokens": "4?"},
            },
            "wrong_shape",
            "the server's information",
        ),
        (
            {
                "dialect": "sglang-0.5.13",
                "page": hostile.times("sglang:spec_verify_calls_total", 5),
            },
            "impossible",
            "more steps than tokens",
        ),
        ({"drop": 3}, "all_requests_succeeded", "11 of 12 succeeded"),
        ({"scrape": hostile.html}, "invalid_measurement", "instead of Prometheus text"),
        ({"scrape": hostile.nothing}, "scrape_failed", "status 204"),
        ({"scrape": hostile.cut_off}, "scrape_failed", "failed 3 times"),
        ({"scrape": hostile.shorter_than_said}, "scrape_failed", "failed 3 times"),
        ({"scrape": hostile.elsewhere}, "scrape_failed", "leads to http://localhost"),
        (
            {"page": lambda text: text.replace('engine="0"', 'engine="zero"')},
            "invalid_measurement",
            "appeared",
        ),
        (
            {
                "page": lambda text: (
                    f'{text}{hostile.ACCEPTED}{{engine="0",model_name="{MODEL}"}} 1\n'
                )
            },
            "invalid_measurement",
            "given twice",
        ),
        ({"page": hostile.accepted(lambda _: "NaN")}, "invalid_measurement", "isn't finite"),
        ({"page": hostile.accepted(lambda _: "+Inf")}, "invalid_measurement", "isn't finite"),
        ({"page": hostile.accepted(lambda _: "many")}, "invalid_measurement", "not Prometheus"),
        ({"page": hostile.accepted(lambda n: f"-{n}")}, "invalid_measurement", "fell from"),
        ({"page": hostile.accepted(lambda n: f"{n}.4")}, "invalid_measurement", "whole number"),
        (
            {"page": lambda text: text.replace('position="1"', 'position="x"')},
            "invalid_measurement",
            "appeared",
        ),
        ({"chunk": hostile.usage(None)}, "no_generation", "no usage"),
        ({"chunk": hostile.usage([1])}, "no_generation", "unknown shape"),
        (
            {"chunk": hostile.usage({"prompt_tokens": 20, "completion_tokens": "41"})},
            "no_generation",
            "where a count should be",
        ),
        (
            {"chunk": hostile.usage({"prompt_tokens": 20, "completion_tokens": 10**400})},
            "no_generation",
            "where a count should be",
        ),
        ({"chunk": hostile.choices(finish_reason=None)}, "no_generation", "broken off"),
        ({"chunk": hostile.choices(finish_reason="abort")}, "no_generation", "broken off"),
        ({"chunk": hostile.choices(delta={})}, "outputs_not_empty", "are empty"),
        (
            {"chunk": hostile.choices(delta={"reasoning_content": "hm, so"})},
            "thinking_seen",
            "thinking off",
        ),
        ({"chunk": lambda data: data.update(choices=None)}, "no_generation", "broken off"),
        ({"chunk": lambda data: data.update(model="gpt-5")}, "other_model", "answers as gpt-5"),
        ({"dialect": OWN, "chunk": hostile.own_figures("x")}, "no_generation", "unknown shape"),
        ({"dialect": OWN, "chunk": hostile.own_figures(BELOW)}, "no_generation", "a count"),
        (
            {"dialect": OWN, "chunk": hostile.own_figures(TWICE)},
            "requests_own_figures_equal_counters",
            "",
        ),
    ],
)
def test_no_verdict_and_a_name(
    server: dict[str, Any], reason: str, words: str, prompts: Path, tmp_path: Path
) -> None:
    with HostileServer(**server).running() as running:
        status, record = run(running, prompts, tmp_path / "al.json", "--no-gate")
    assert (status, record["reason"]) == (3, reason), record["error"]
    assert words in record["error"]


@pytest.mark.parametrize(
    "server",
    [
        {"scrape": hostile.compressed},
        {"page": hostile.lines(lambda line: f"{line} 1700000000000")},
        {"page": lambda text: text.replace("\n", "\r\n")},
        {"page": lambda text: text + "vllm:something_else NaN\n"},
        {"page": lambda text: text + text},
        {"page": hostile.accepted(lambda value: f"{float(value):e}")},
        {"chunk": lambda data: data.update(model=f"{MODEL}-20261201")},
        {"chunk": hostile.choices(finish_reason="stop")},
    ],
)
def test_what_is_only_strange_is_measured(
    server: dict[str, Any], prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with HostileServer(**server).running() as running:
        running.base_url += "/"
        status, record = run(running, prompts, tmp_path / "al.json", "--no-gate")
    assert (status, record["error"]) == (0, None)
    counted = record["verify_steps"], record["accepted_tokens"]
    assert counted == (running.steps, running.accepted)


def test_another_model_may_be_on_the_page_but_not_come_during_the_window(
    prompts: Path, tmp_path: Path
) -> None:
    with HostileServer(page=hostile.beside(7)).running() as server:
        status, record = run(server, prompts, tmp_path / "al.json", "--no-gate")
        assert status == 3
        assert "appeared during the window" in record["error"]
        status, record = run(server, prompts, tmp_path / "al.json", "--no-gate")
        assert (status, record["error"]) == (0, None)


@pytest.mark.parametrize(
    "options",
    [
        ["--base-url", "127.0.0.1:8888"],
        ["--base-url", "http://127.0.0.1:8888/v1"],
        ["--base-url", "http://127.0.0.1:port"],
        ["--base-url", "http://127.0.0.1:99999"],
        ["--base-url", "http://[::1"],
        ["--base-url", "ftp://127.0.0.1"],
        ["--metrics-url", "worker:8081/metrics"],
        ["--num-prompts", "0"],
        ["--num-prompts", "-3"],
        ["--concurrency", "0"],
        ["--output-len", "0"],
        ["--engines", "0"],
        ["--num-spec-tokens", "0"],
        ["--server-pid", "-1"],
        ["--temperature", "nan"],
        ["--temperature", "-1"],
        ["--stall-s", "0"],
        ["--request-deadline-s", "inf"],
        ["--total-deadline-s", "nan"],
        ["--total-deadline-s", "soon"],
    ],
    ids=" ".join,
)
def test_an_option_that_cannot_be_meant(
    options: list[str], prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = SpeculatingServer()
    server.base_url = "http://127.0.0.1:9"
    with pytest.raises(SystemExit) as ended:
        run(server, prompts, tmp_path / "al.json", *options)
    assert ended.value.code == 2
    assert f"argument {options[0]}: {options[1]!r}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--output", "{here}/file/al.json"], "can't be written"),
        (["--golden", "{here}"], "tolerances.yaml"),
        (["--plan", "{here}/plan.json"], "can't be read"),
        (["--plan", "{here}/file"], "not valid JSON"),
        (["--plan", "{here}/list.json"], "not of type 'object'"),
        (["--model", ""], "model"),
    ],
)
def test_what_would_spoil_the_end_is_found_before_the_first_request(
    options: list[str], words: str, prompts: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "list.json").write_text("[]")
    options = [option.replace("{here}", str(tmp_path)) for option in options]
    with SpeculatingServer().running() as server:
        with pytest.raises(UsageError, match=words):
            run(server, prompts, tmp_path / "al.json", *options)
        assert server.requests == 0


def test_more_chunks_than_tokens_are_no_acceptance_length(prompts: Path, tmp_path: Path) -> None:
    few = hostile.usage({"prompt_tokens": 20, "completion_tokens": 3})
    with HostileServer(dialect="openai", chunk=few).running() as server:
        more = ["--no-gate", "--metrics", "none"]
        status, record = run(server, prompts, tmp_path / "al.json", *more)
    assert (status, record["reason"]) == (3, "impossible")


def test_a_connection_that_broke_is_not_asked_again(prompts: Path, tmp_path: Path) -> None:
    with HostileServer(drop=3).running() as server:
        _, record = run(server, prompts, tmp_path / "al.json", "--no-gate")
    assert {row["tries"] for row in record["raw"]["requests"]} == {1}
    assert server.requests == 1 + len(record["raw"]["requests"])


def test_an_endpoint_that_dies_during_the_window_is_no_zero(prompts: Path, tmp_path: Path) -> None:
    def scrape(request: web.Request, answer: web.Response) -> web.StreamResponse:
        dead = server.requests > 1 and request.path == "/worker/1/metrics"
        return web.Response(status=503) if dead else answer

    server = HostileServer(dialect="dynamo-vllm", ranks=2, scrape=scrape)
    with server.running():
        urls = [f"{server.base_url}/worker/{rank}/metrics" for rank in range(2)]
        more = ["--no-gate", "--engines", "2", "--metrics-url", urls[0], "--metrics-url", urls[1]]
        status, record = run(server, prompts, tmp_path / "al.json", *more)
    assert (status, record["reason"]) == (3, "scrape_failed")
    assert f"scrape of {urls[1]} failed" in record["error"]


def test_a_recheck_of_what_breaks_arithmetic(prompts: Path, tmp_path: Path) -> None:
    output = tmp_path / "al.json"
    with SpeculatingServer(dialect=OWN).running() as server:
        _, record = run(server, prompts, output, "--no-gate")
    record["raw"]["requests"][0]["spec"]["accepted"] = 10**299
    output.write_text(json.dumps(record))
    with pytest.raises(NotMeasured, match="the record holds what no engine says"):
        speedbench_al.main(["recheck", str(output)])


def _ended(server: SpeculatingServer, prompts: Path, output: Path, number: int) -> tuple[int, Any]:
    """Exit status and record of a measurement that a signal ends while requests are under way."""
    command = [sys.executable, "-m", "utils.evals.speedbench_al", "measure"]
    command += ["--base-url", server.base_url, "--engine", "vllm", "--model", MODEL]
    command += ["--model-prefix", "smollm2", "--thinking", "off", "--num-spec-tokens", "3"]
    command += ["--prompts", str(prompts), "--num-prompts", "12", "--output", str(output)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 30
        while server.requests < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        status = process.wait(30)
    return status, records.read_json(output)


@pytest.mark.parametrize(
    ("number", "status", "reason"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "interrupted"),
        (signal.SIGKILL, -signal.SIGKILL, "unfinished"),
    ],
)
def test_whatever_ends_it_leaves_the_record_of_a_failed_attempt(
    number: int, status: int, reason: str, prompts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "al.json"
    output.write_text(json.dumps({"a record": "of yesterday"}))
    with SpeculatingServer(faults=("mute",)).running() as server:
        found, record = _ended(server, prompts, output, number)
    assert (found, record["reason"], record["passed"]) == (status, reason, False)
    assert records.schema_problem(record, "al_record_v2") is None


def test_a_crash_of_ours_is_no_measurement(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "al.json"
    monkeypatch.setattr(speedbench_al.measure, "observe", lambda *_: 1 / 0)
    with SpeculatingServer().running() as server, pytest.raises(ZeroDivisionError):
        run(server, prompts, output, "--no-gate")
    record = records.read_json(output)
    assert (record["reason"], record["acceptance_length"]) == ("unfinished", None)
