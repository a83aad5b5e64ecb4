"""The serving benchmark: figures of made-up answers, prompts of an asked length, whole runs."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.dialects import PROMPT_TOKENS
from tests.fakes.speculating import MODEL, SpeculatingServer
from utils import records
from utils.acceptance.client import Answer
from utils.errors import NotMeasured, UsageError
from utils.evals import speedbench, thresholds, throughput_files
from utils.recipes import run_plan, settings
from utils.serving import bench, figures, sized_prompts, slo

TWIN = settings.ROOT / "benchmarks/single_node/smollm2_bf16_cpu_vllm_mtp.sh"


def answer(number: int, **fields: object) -> Answer:
    made = Answer(f"serving/{number}", ok=True, prompt_tokens=100, completion_tokens=11)
    made.ttft_s, made.e2e_s = 0.1, 0.1 + 0.1 * number
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_latencies_are_of_successes_only_and_failures_are_counted() -> None:
    answers = [answer(n) for n in range(1, 10)]
    answers.append(answer(10, ok=False, error="HTTP 500", e2e_s=600.0))
    found = figures.summary(answers, 2.0, {})
    assert (found["requested"], found["completed"], found["failed"]) == (10, 9, 1)
    assert found["first_error"] == "HTTP 500"
    assert found["total_output_tokens"] == 99
    assert found["output_tokens_per_s"] == 49.5
    assert found["requests_per_s"] == 4.5
    assert found["e2e_s"]["p99"] == pytest.approx(1.0)
    assert found["tpot_s"]["p50"] == pytest.approx(0.05)
    assert (found["slo"], found["goodput_requests_per_s"]) == (None, None)


def test_nothing_completed_has_no_latency() -> None:
    found = figures.summary([answer(1, ok=False, error="no connection")], 1.0, {"ttft_s": 1.0})
    assert (found["completed"], found["ttft_s"], found["chunk_gap_s"]) == (0, None, None)
    assert (found["good_requests"], found["goodput_requests_per_s"]) == (0, 0.0)


@pytest.mark.parametrize("nothing", [{"completion_tokens": 0}, {"ttft_s": None, "e2e_s": None}])
def test_an_answer_without_anything_is_a_failure(nothing: dict[str, Any]) -> None:
    found = figures.summary([answer(1), answer(2, **nothing)], 1.0, {})
    assert (found["completed"], found["failed"]) == (1, 1)
    assert found["first_error"] == "an answer without a token"


def test_one_token_has_no_time_per_token() -> None:
    found = figures.summary([answer(1, completion_tokens=1)], 1.0, {"tpot_s": 0.001})
    assert found["tpot_s"] is None
    assert found["good_requests"] == 1


def test_chunks_are_counted_apart_from_tokens() -> None:
    answers = [answer(1, gaps_s=array("d", [0.1, 0.3])), answer(2, gaps_s=array("d", [0.2]))]
    assert figures.summary(answers, 1.0, {})["chunk_gap_s"]["p50"] == 0.2


def test_a_good_request_keeps_every_limit() -> None:
    limits = slo.parse("e2e_s=0.65 tpot_s=0.045")
    found = figures.summary([answer(n) for n in range(1, 10)], 2.0, limits)
    assert found["good_requests"] == 4  # of the five within e2e_s one is too slow per token
    assert found["goodput_requests_per_s"] == 2.0


@pytest.mark.parametrize("text", ["ttft=1", "ttft_s", "ttft_s=0", "ttft_s=nan", "e2e_s=1 e2e_s=2"])
def test_limits_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="want each of ttft_s, tpot_s, e2e_s at most once"):
        slo.parse(text)


@pytest.mark.parametrize(("count", "figured"), [(1, (1, 1, 1, 1)), (100, (50.5, 50, 90, 99))])
def test_mean_and_nearest_rank_percentiles(count: int, figured: tuple[float, ...]) -> None:
    found = figures.spread([float(n) for n in range(1, count + 1)])
    assert found is not None
    assert tuple(found.values()) == figured


@pytest.mark.parametrize("words", [["a b c", "d e"], ["incomprehensibilities\n of", "it"]])
@pytest.mark.parametrize("by", ["words", "characters"])
def test_prompts_have_the_asked_length_and_are_all_different(words: list[str], by: str) -> None:
    def count(text: str) -> int:
        return 10 + (len(text.split()) if by == "words" else len(text) // 4)

    prompts = sized_prompts.build(words, 64, 5, count)
    texts = [str(prompt.messages[0]["content"]) for prompt in prompts]
    assert [count(text) for text in texts] == [64] * 5
    assert len(set(texts)) == 5


def test_a_long_prompt_takes_few_questions() -> None:
    asked = 0

    def count(text: str) -> int:
        nonlocal asked
        asked += 1
        return 10 + len(text) // 4

    prompts = sized_prompts.build(["some words of a text " * 20, "others " * 50], 8192, 20, count)
    assert all(8160 <= count(p.messages[0]["content"]) <= 8192 for p in prompts)
    assert asked - 20 <= 1 + 20 * 3


def test_a_template_longer_than_asked_is_refused() -> None:
    with pytest.raises(NotMeasured, match="ISL=10 is not more than the chat template's 10"):
        sized_prompts.build(["a"], 10, 1, lambda text: 10 + len(text))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speedbench.prepare_proxy(tmp_path_factory.mktemp("prompts")).parent


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    environment = {"MODEL": MODEL, "TP": "1", "CONC": "2", "ISL": "20", "OSL": "8"}
    asked = settings.load(TWIN, {**environment, "MAX_MODEL_LEN": "2048"})
    made = run_plan.stamp(run_plan.make(asked, run_plan.load_speculation(asked, ["ngram", "3"])))
    records.write_json(tmp_path / "plan.json", made, "plan")
    return tmp_path / "plan.json"


def run(
    server: SpeculatingServer, prompts: Path, folder: Path, *more: str, concurrency: str = "2"
) -> int:
    return bench.main(
        [
            *("--base-url", server.base_url, "--model", MODEL, "--model-prefix", "smollm2"),
            *("--prompts-dir", str(prompts), "--isl", str(PROMPT_TOKENS), "--osl", "8"),
            *("--concurrency", *concurrency.split(), "--prompts-per-slot", "5"),
            *("--output", str(folder / "serving.json"), *more),
        ]
    )


def judge(data: Any) -> Any:
    limits = thresholds.load(thresholds.FILE).limits
    return throughput_files.judge(throughput_files.read("serving.json", data), "serving", limits)


def test_a_whole_run(prompts: Path, plan: Path, tmp_path: Path) -> None:
    with SpeculatingServer(faults=["slow"]).running() as server:  # so that the client isn't busy
        status = run(server, prompts, tmp_path, "--plan", str(plan), "--slo", "e2e_s=30")
    result = records.read_json(tmp_path / "serving.json")
    assert status == 0
    assert judge(result).outcome == "pass"
    assert (result["client"], result["prompts"], result["warmup_requests"]) == (
        "specgate",
        "text",
        2,
    )
    assert result["requested"] == result["completed"] == result["good_requests"] == 10
    assert result["total_output_tokens"] == 80
    assert result["run_id"] == records.read_json(plan)["run_id"]
    assert result["gpu"]["state"] == "no_gpu"
    warm_up, measured = server.bodies[:2], server.bodies[2:]
    assert not {str(b["messages"]) for b in warm_up} & {str(b["messages"]) for b in measured}


def test_what_was_accepted_in_the_window_alone(prompts: Path, plan: Path, tmp_path: Path) -> None:
    with SpeculatingServer().running() as server:
        run(server, prompts, tmp_path, "--plan", str(plan))
        whole = server.steps
    found = records.read_json(tmp_path / "serving.json")["acceptance"]
    assert found["source"] == "counters"
    assert 0 < found["verify_steps"] < whole
    assert found["acceptance_length"] == 1 + found["accepted_tokens"] / found["verify_steps"]


@pytest.mark.parametrize(("accept", "osl", "status"), [(0.8, 200, 0), (0.6, 200, 1), (0.8, 8, 3)])
def test_synthetic_acceptance_is_read_back(
    accept: float, osl: int, status: int, prompts: Path, plan: Path, tmp_path: Path
) -> None:
    """The demo's golden is 2.96: realised, not realised, too few steps to tell."""
    records.write_json(plan, {**records.read_json(plan), "synthetic_acceptance": True})
    with SpeculatingServer(accept=accept).running() as server:
        more = ("--plan", str(plan), "--osl", str(osl))
        assert run(server, prompts, tmp_path, *more) == status


def test_acceptance_that_nobody_knows_has_a_reason(
    prompts: Path, plan: Path, tmp_path: Path
) -> None:
    with SpeculatingServer(faults=["scrape_503"]).running() as server:
        assert run(server, prompts, tmp_path, "--plan", str(plan)) == 0
    result = records.read_json(tmp_path / "serving.json")
    assert result["acceptance"] is None
    assert "status 503" in result["acceptance_problem"]


def test_no_step_has_no_acceptance(prompts: Path, plan: Path, tmp_path: Path) -> None:
    with SpeculatingServer().running() as server:
        assert run(server, prompts, tmp_path, "--plan", str(plan), "--osl", "1") == 0
    result = records.read_json(tmp_path / "serving.json")
    assert result["acceptance"] is None
    assert result["acceptance_problem"] == "the server speculated in no step"


def test_a_base_recipe_has_no_acceptance(prompts: Path, tmp_path: Path) -> None:
    with SpeculatingServer().running() as server:
        assert run(server, prompts, tmp_path) == 0
    result = records.read_json(tmp_path / "serving.json")
    assert (result["acceptance"], result["acceptance_problem"]) == (None, None)


def test_a_fifth_of_failures_is_red_with_its_count(prompts: Path, tmp_path: Path) -> None:
    with SpeculatingServer(faults=["fail_20"]).running() as server:
        assert run(server, prompts, tmp_path) == 3
    result = records.read_json(tmp_path / "serving.json")
    assert (result["requested"], result["completed"], result["failed"]) == (10, 8, 2)
    assert "HTTP 500" in result["first_error"]
    assert judge(result).reason == "requests_failed"


def test_a_sweep_writes_a_record_per_point(prompts: Path, tmp_path: Path) -> None:
    with SpeculatingServer().running() as server:
        assert run(server, prompts, tmp_path, concurrency="1 3") == 0
    found = {path.name: records.read_json(path) for path in tmp_path.glob("*.json")}
    assert sorted(found) == ["serving_conc1.json", "serving_conc3.json"]
    assert [found[name]["requested"] for name in sorted(found)] == [5, 15]


def test_a_failing_point_does_not_stop_the_next(prompts: Path, tmp_path: Path) -> None:
    with SpeculatingServer(faults=["fail_20"]).running() as server:
        assert run(server, prompts, tmp_path, concurrency="1 3") == 3
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_a_point_without_a_result_does_not_stop_the_next(
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def lost(*_: object) -> None:
        raise NotMeasured("AIPerf wrote 2 rows for 3 requests")

    monkeypatch.setattr(bench.aiperf_run, "run", lost)
    with SpeculatingServer().running() as server:
        more = ("--client", "aiperf", "--tokenizer", "x")
        assert run(server, prompts, tmp_path, *more, concurrency="1 3") == 3
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["serving conc=1", "serving conc=3"]
    assert not list(tmp_path.glob("*.json"))


def test_the_worst_point_decides(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bench, "_point", lambda _, concurrency, prompts: 3 if concurrency == 1 else 0
    )
    with SpeculatingServer().running() as server:
        assert run(server, prompts, tmp_path, concurrency="1 3") == 3


def test_a_server_that_cant_tokenize_is_not_measured(prompts: Path, tmp_path: Path) -> None:
    with SpeculatingServer().running() as server:
        server.base_url += "/nowhere"
        with pytest.raises(NotMeasured, match="/nowhere/tokenize can't count tokens: 404"):
            run(server, prompts, tmp_path)


def test_aiperf_without_a_tokenizer_is_refused(prompts: Path, tmp_path: Path) -> None:
    with (
        SpeculatingServer().running() as server,
        pytest.raises(UsageError, match="--tokenizer"),
    ):
        run(server, prompts, tmp_path, "--client", "aiperf")
