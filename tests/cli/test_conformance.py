"""The conformance command on fakes whose figures are known to agree or to differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.speculating import MODEL, SpeculatingServer
from utils import errors
from utils.acceptance import meter
from utils.acceptance.__main__ import main


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "SETTLE_INTERVAL_S", 0.05)


def conform(*more: str, **server: Any) -> int:
    with SpeculatingServer(**server).running() as running:
        arguments = ["conformance", "--base-url", running.base_url, "--model", MODEL, *more]
        return errors.run(lambda: main([*arguments, "--spec-method", "eagle3"]))


def test_figures_that_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform(dialect="vllm-0.29") == 0
    text = capsys.readouterr().out
    assert "vllm, N=3, method eagle3" in text
    for name in ("AL by counters", "AL by requests' own figures", "AL by stream chunks"):
        assert any(line.startswith("agrees") and name in line for line in text.splitlines())
    assert "differs" not in text


def test_the_prefill_token_in_a_servers_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform(dialect="sglang-0.5.23") == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("differs")]
    assert "the prefill token is counted" in lines[0]
    assert "gauge sglang:spec_accept_length" in lines[1]
    assert "last window" in lines[1]


@pytest.mark.parametrize("dialect", ["trt-iterations", "trt-counters", "atom", "llamacpp"])
def test_engines_that_do_not_say_n_are_told(dialect: str) -> None:
    known = [] if dialect == "trt-counters" else ["--num-spec-tokens", "3"]
    engine = ["--engine", "trt"] if dialect == "trt-counters" else []
    assert conform(*engine, *known, dialect=dialect) in (0, 1)


def test_an_unknown_n_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform(dialect="atom") == 2
    assert "--num-spec-tokens" in capsys.readouterr().err


def test_foreign_traffic_is_no_conformance(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform(dialect="vllm-0.29", faults=("foreign",)) == 3
    assert "BROKEN   server_requests_equal_ours" in capsys.readouterr().out


def test_another_n_than_the_servers_is_refused() -> None:
    assert conform("--num-spec-tokens", "5", dialect="vllm-0.29") == 3


def test_json_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform("--json", dialect="vllm-0.29") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["num_speculative_tokens"] == 3
    assert all(figure["differs"] == "" for figure in report["figures"])
