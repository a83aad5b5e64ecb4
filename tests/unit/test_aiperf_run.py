"""AIPerf's command line, and what becomes of what it leaves behind."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from utils.acceptance.client import Answer, Load, Pace, Prompt
from utils.errors import NotMeasured, UsageError
from utils.serving import aiperf_run

LOAD = Load(
    base_url="http://127.0.0.1:1",
    model="m",
    sampling={"temperature": 0.6},
    chat_template_kwargs={"thinking": True},
    output_len=32,
    concurrency=4,
)
PROMPTS = [Prompt(f"serving/{i}", ({"role": "user", "content": f"text {i}"},)) for i in range(3)]
FAILED = {"code": 500, "type": "Internal Server Error", "message": "internal error"}
# Writes what it is told to in place of sending anything.
FAKE = """#!{python}
import json, os, sys
told = json.loads(os.environ["FAKE_AIPERF"])
folder = sys.argv[sys.argv.index("--artifact-dir") + 1]
lines = open(sys.argv[sys.argv.index("--input-file") + 1]).read().splitlines()
with open(os.environ["FAKE_LOG"], "w") as log:
    json.dump({{"argv": sys.argv, "env": dict(os.environ), "prompts": lines}}, log)
if told["rows"] is not None:
    with open(folder + "/profile_export.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\\n" for row in told["rows"])
if told["summary"] is not None:
    with open(folder + "/profile_export_aiperf.json", "w") as file:
        json.dump(told["summary"], file)
print("a line of its log")
sys.exit(told["status"])
"""
WHOLE = {"is_complete": True, "was_cancelled": False}


def row(number: int, error: Any = None, **change: float) -> Any:
    start = 1_000_000_000 * (10 + number)
    metadata = {
        "session_num": number,
        "benchmark_phase": "profiling",
        "credit_issued_ns": start - 5_000_000,
        "request_start_ns": start,
        "request_end_ns": start + 500_000_000,
    }
    if error:
        return {"metadata": metadata, "metrics": {}, "error": error}
    metrics: dict[str, Any] = {
        "time_to_first_token": 100.0,
        "request_latency": 500.0,
        "usage_prompt_tokens": 20,
        "usage_completion_tokens": 32,
        "inter_chunk_latency": [10.0, 20.0],
        **change,
    }
    return {"metadata": metadata, "metrics": {k: {"value": v} for k, v in metrics.items()}}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    program = tmp_path / "aiperf"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setattr(aiperf_run.install, "aiperf_environment", lambda _: f"AIPERF={program}")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))

    def go(rows: Any, summary: Any = WHOLE, status: int = 0) -> tuple[list[Answer], float, Pace]:
        told = {"rows": rows, "summary": summary, "status": status}
        monkeypatch.setenv("FAKE_AIPERF", json.dumps(told))
        pace = Pace(4)
        return (*aiperf_run.run(LOAD, PROMPTS, str(tmp_path), pace), pace)

    return go


def test_its_rows_become_our_answers(run: Any) -> None:
    answers, began, pace = run([row(1), row(0), row(2)])
    assert [answer.id for answer in answers] == ["serving/0", "serving/1", "serving/2"]
    first = answers[0]
    assert (first.ok, first.ttft_s, first.e2e_s) == (True, 0.1, 0.5)
    assert (first.prompt_tokens, first.completion_tokens) == (20, 32)
    assert list(first.gaps_s) == [0.01, 0.02]
    assert (began, pace.duration_s) == (10.0, 2.5)
    assert pace.start_lag_s == pytest.approx(0.005)


def test_what_it_is_told(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    run([row(0), row(1), row(2)])
    log = json.loads((tmp_path / "log").read_text())
    argv = log["argv"]
    assert argv[argv.index("--request-count") + 1] == "3"
    assert argv[argv.index("--concurrency") + 1] == "4"
    assert json.loads(argv[argv.index("--extra-inputs") + 1]) == {
        "temperature": 0.6,
        "max_tokens": 32,
        "chat_template_kwargs": {"thinking": True},
    }
    assert {"--use-server-token-count", "--no-gpu-telemetry", "--request-rate"} <= set(argv)
    assert [json.loads(line)["text"] for line in log["prompts"]] == ["text 0", "text 1", "text 2"]
    assert not {"HF_HUB_OFFLINE", "PYTHONPATH"} & log["env"].keys()
    assert not Path(log["env"]["TMPDIR"]).exists()


def test_failures_are_kept_though_it_ends_well(run: Any) -> None:
    answers, _, _ = run([row(0), row(1, FAILED), row(2)])
    assert [answer.ok for answer in answers] == [True, False, True]
    assert answers[1].error == "Internal Server Error: internal error"
    assert answers[1].status == 500


def test_all_failed_has_no_summary(run: Any) -> None:
    answers, _, _ = run([row(n, FAILED) for n in range(3)], summary=None, status=1)
    assert [answer.ok for answer in answers] == [False] * 3


def test_a_row_without_usage_is_a_failure(run: Any) -> None:
    bare = row(1)
    del bare["metrics"]["usage_completion_tokens"]
    answers, _, _ = run([row(0), bare, row(2)])
    assert answers[1].error == "AIPerf's row has no 'usage_completion_tokens'"


def test_its_own_warm_up_does_not_count(run: Any) -> None:
    early = row(3)
    early["metadata"]["benchmark_phase"] = "warmup"
    assert len(run([early, row(0), row(1), row(2)])[0]) == 3


@pytest.mark.parametrize(
    ("rows", "summary", "status", "message"),
    [
        ([row(0), row(1)], WHOLE, 0, "2 rows for 3 requests"),
        ([row(0), row(1), row(2)], WHOLE, 1, "status 1 after it had answers"),
        ([row(0), row(1), row(2)], {**WHOLE, "was_cancelled": True}, 0, "cut short"),
        ([row(0), row(1), row(2)], {**WHOLE, "is_complete": False}, 0, "cut short"),
        ([row(0), row(1), row(2)], None, 0, "can't be read"),
        ([], None, 1, "ended with 1 and sent nothing\n  | a line of its log"),
        (None, None, 1, "profile_export.jsonl can't be read"),
        ([{"metadata": {}}], None, 0, "profile_export.jsonl can't be read"),
    ],
)
def test_what_it_lost_count_of_is_refused(
    run: Any, rows: Any, summary: Any, status: int, message: str
) -> None:
    with pytest.raises(NotMeasured) as caught:
        run(rows, summary, status)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"endpoint": "completions"}, "chat route only"), ({}, "would show OPENAI_API_KEY")],
)
def test_what_it_cant_do_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: dict[str, str], message: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    load = Load(**{**vars(LOAD), **change})
    with pytest.raises(UsageError, match=message):
        aiperf_run.command("aiperf", load, 1, str(tmp_path), tmp_path)


def test_a_tokenizer_of_a_hub_is_refused() -> None:
    with pytest.raises(UsageError, match="org/model is none: set MODEL_PATH"):
        aiperf_run.run(LOAD, PROMPTS, "org/model", Pace(4))


def test_not_installed_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECGATE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="--only aiperf"):
        aiperf_run.run(LOAD, PROMPTS, str(tmp_path), Pace(4))
    assert "SPECGATE_HOME" in os.environ
