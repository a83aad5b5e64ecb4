from __future__ import annotations

from typing import Any

import pytest

from utils.errors import NotMeasured
from utils.evals import throughput_files
from utils.evals.throughput_files import judge, read
from utils.verdicts import Outcome

LIMITS = {"failed_requests": 0.0, "input_length": 0.02}


def ours(**changes: Any) -> dict[str, Any]:
    spread = {"p50": 0.1, "p90": 0.2, "p99": 0.3}
    base = {
        "task": "serving", "dataset": "d", "model": "m", "model_prefix": "p", "run_id": "r",
        "isl": 100, "osl": 10, "concurrency": 4, "requested": 20, "completed": 20, "failed": 0,
        "started": "2026-12-01T10:00:00Z", "finished": "2026-12-01T10:01:00Z", "first_error": None,
        "duration_s": 10.0, "total_input_tokens": 2000, "total_output_tokens": 200,
        "output_tokens_per_s": 20.0, "ttft_s": spread, "tpot_s": spread, "e2e_s": spread,
    }  # fmt: skip
    return {**base, **changes}


def theirs(**changes: Any) -> dict[str, Any]:
    base = {"tput_per_gpu": 5.0, "conc": 4, "isl": 8192, "osl": 1024, "infmax_model_prefix": "p"}
    return {**base, "median_ttft": 0.1, "p99_ttft": 0.2, "mean_e2el": 1.0, **changes}


def reason(data: dict[str, Any], **limits: float) -> str:
    verdict = judge(read("x.json", data), "cell", {**LIMITS, **limits})
    assert verdict.outcome is (Outcome.NOT_MEASURED if verdict.reason else Outcome.PASS)
    assert verdict.evidence == ("x.json",)
    return verdict.reason


@pytest.mark.parametrize(
    ("data", "yes"),
    [
        (ours(), True),
        (theirs(), True),
        ({"task": "serving"}, True),
        ({"task": "other", "conc": 1}, False),
        ({"tput_per_gpu": 1.0}, False),
        ([], False),
        (None, False),
    ],
)
def test_recognised_by_content(data: Any, yes: bool) -> None:
    assert throughput_files.is_throughput_file(data) is yes


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"completed": 19}, "requests_vanished"),
        ({"completed": 20, "failed": 1}, "requests_vanished"),
        ({"completed": 19, "failed": 1}, "requests_failed"),
        ({"total_output_tokens": 0}, "no_tokens"),
        # 2 % of 100 tokens
        ({"total_input_tokens": 1960}, ""),
        ({"total_input_tokens": 2040}, ""),
        ({"total_input_tokens": 1959}, "input_length"),
        ({"total_input_tokens": 2041}, "input_length"),
        ({"osl": 9}, "output_length"),
        ({"osl": 1000}, ""),
        ({"output_tokens_per_s": 20.2}, ""),
        ({"output_tokens_per_s": 20.21}, "contradicts_itself"),
        ({"output_tokens_per_s": 19.79}, "contradicts_itself"),
        ({"duration_s": 2.0, "output_tokens_per_s": 99.0}, ""),
        ({"duration_s": 0.5, "output_tokens_per_s": 400.0}, ""),
        ({"duration_s": 0}, "no_duration"),
        ({"duration_s": 0, "output_tokens_per_s": 0}, "no_duration"),
        ({"tpot_s": None}, ""),
        ({"ttft_s": {"p50": 0.1, "p90": 0.1, "p99": 0.1}}, ""),
        ({"ttft_s": {"p50": 0.1, "p90": 0.09, "p99": 0.3}}, "impossible"),
        ({"ttft_s": {"p50": 0.1, "p90": 0.2, "p99": 0.19}}, "impossible"),
        ({"tpot_s": {"p50": -0.1, "p90": 0.2, "p99": 0.3}}, "impossible"),
        ({"tpot_s": {"p50": 0.0, "p90": 0.2, "p99": 0.3}}, ""),
        ({"ttft_s": {"p50": 0.1, "p90": 0.2, "p99": 0.31}}, "impossible"),
        ({"ttft_s": {"p50": 0.1, "p90": 0.21, "p99": 0.3}}, "impossible"),
        ({"e2e_s": None}, ""),
        ({"peak_output_tokens_per_s": 20.0}, ""),
        ({"peak_output_tokens_per_s": 19.9}, "impossible"),
    ],
)
def test_our_files(changes: dict[str, Any], why: str) -> None:
    assert reason(ours(**changes)) == why


@pytest.mark.parametrize(
    ("completed", "failed", "why"),
    [(19, 1, ""), (18, 2, "requests_failed"), (0, 20, "requests_failed")],
)
def test_error_budget(completed: int, failed: int, why: str) -> None:
    share = completed / 20
    data = ours(
        completed=completed,
        failed=failed,
        total_input_tokens=int(2000 * share),
        total_output_tokens=int(200 * share),
        output_tokens_per_s=20.0 * share,
    )
    verdict = judge(read("x.json", data), "cell", {**LIMITS, "failed_requests": 0.05})
    assert (verdict.reason, verdict.lower, verdict.upper) == (why, 19.0, 20.0)
    assert verdict.measured == completed


def test_all_failed_is_a_failure_under_every_budget() -> None:
    data = ours(completed=0, failed=20, first_error="status 500")
    verdict = judge(read("x.json", data), "cell", {**LIMITS, "failed_requests": 1.0})
    assert (verdict.reason, verdict.detail) == (
        "requests_failed",
        "20 of 20 failed: status 500; see server.log",
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"tput_per_gpu": 0}, "no_tokens"),
        ({"tput_per_gpu": 0.5}, ""),
        ({"p99_ttft": 0.05}, "impossible"),
        ({"p99.9_ttft": 0.19}, "impossible"),
        ({"p99.9_ttft": 0.21}, ""),
        ({"mean_ttft": 1.1}, "impossible"),
        ({"mean_ttft": 1.0}, ""),
        ({"p99_itl": -1.0}, "impossible"),
        ({"std_ttft": -1.0, "p99_intvty": 1.0, "p50_intvty": 2.0}, ""),
    ],
)
def test_files_of_inferencex(changes: dict[str, Any], why: str) -> None:
    assert reason(theirs(**changes)) == why


@pytest.mark.parametrize("changes", [{"p99_ttft": "1"}, {"tput_per_gpu": True}, {"p9_itl": None}])
def test_what_is_no_number(changes: dict[str, Any]) -> None:
    with pytest.raises(NotMeasured) as caught:
        read("x.json", theirs(**changes))
    assert caught.value.reason == "wrong_shape"


def test_ours_needs_its_schema() -> None:
    with pytest.raises(NotMeasured, match="requested") as caught:
        read("x.json", {**ours(), "requested": 0})
    assert caught.value.reason == "wrong_shape"


def test_cells() -> None:
    assert read("x", ours()).cell == (100, 10, 4)
    assert read("x", theirs(isl="8192", conc="4")).cell == (8192, 1024, 4)
    older = read("x", {"tput_per_gpu": 1.0, "conc": 4}).cell
    assert throughput_files.cell_name(older) == "serving isl=? osl=? conc=4"


def test_what_a_file_says_of_its_run() -> None:
    said = {"started": "2026-12-01T10:00:00Z", "run_id": "r", "prefix": "p", "model": "m"}
    assert read("x", ours()).said == said
    assert read("x", theirs()).said == {"prefix": "p"}
    assert read("x", theirs(infmax_model_prefix=None)).said == {}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"start_lag_s": 1.01}, "client_saturated"),
        ({"loop_lag_s": 0.26}, "client_saturated"),
        ({"cpu_share": 0.91}, "client_saturated"),
        ({"reached_concurrency": None, "loop_lag_s": None, "cpu_share": None}, ""),
    ],
)
def test_a_client_at_its_limit_measured_itself(change: dict[str, Any], why: str) -> None:
    pace = {"concurrency": 4, "reached_concurrency": 4, "duration_s": 10.0}
    sound = {**pace, "start_lag_s": 1.0, "loop_lag_s": 0.25, "cpu_share": 0.9}
    assert reason(ours(client_pace={**sound, **change})) == why


def test_strangers_on_the_gpus_leave_no_verdict() -> None:
    gpu = {"state": "complete", "reason": None, "energy_per_output_token_j": 0.5}
    assert reason(ours(gpu={**gpu, "strangers": None})) == ""
    assert reason(ours(gpu={**gpu, "strangers": []})) == ""
    assert reason(ours(gpu={**gpu, "strangers": ["pid 1 (theirs) on GPU-1"]})) == "strangers"


def test_what_a_record_also_says_is_in_the_verdict() -> None:
    acceptance = {"acceptance_length": 2.5, "accepted_tokens": 3, "verify_steps": 2, "source": "c"}
    gpu = {"state": "complete", "reason": None, "energy_per_output_token_j": 0.5}
    more = {"goodput_requests_per_s": 1.5, "acceptance": acceptance, "gpu": gpu, "client": "aiperf"}
    verdict = judge(read("x.json", ours(**more)), "cell", LIMITS)
    said = "goodput 1.50 requests a second, AL 2.5000 meanwhile, 0.500 J a token, by aiperf"
    assert verdict.detail.endswith(said)
    less = {"acceptance_problem": "status 503", "gpu": {"state": "no_gpu", "reason": "none"}}
    verdict = judge(read("x.json", ours(**less)), "cell", LIMITS)
    assert verdict.detail.endswith("no AL: status 503, GPU power no_gpu")
