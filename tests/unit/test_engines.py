"""Adapters: what they read of real engines' pages, answers, command lines and information."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from utils.acceptance import engines
from utils.acceptance.argv import masked
from utils.acceptance.engines import Counts, RequestCounts, Speculation, atom, load, sglang, trt
from utils.acceptance.exposition import Samples, Series
from utils.errors import NotMeasured

FIXTURES = Path(__file__).parents[1] / "fixtures"
SGLANG, VLLM = load("sglang"), load("vllm")


def page(engine: str, release: str, name: str) -> Samples:
    text = (FIXTURES / release / f"{name}.prom").read_text()
    return load(engine).sources[0].read(text, "u", "text/plain", {})


def window(engine: str, release: str, name: str) -> Counts:
    """Growth between two recorded pages."""
    before, after = (page(engine, release, f"{name}.{end}") for end in ("before", "after"))
    source = load(engine).sources[0]
    return source.counts({s: v - before[s] for s, v in after.items() if s.name in source.counters})


def recorded(path: str) -> Any:
    return json.loads((FIXTURES / path).read_text())


def test_every_adapter_says_how_to_turn_metrics_on_and_what_it_reads() -> None:
    for name, engine in engines.known().items():
        assert engine.how_to_enable, name
        assert all(source.quantity and source.label for source in engine.sources)
        assert all(source.lazy <= source.counters for source in engine.sources)


def test_vllm_recorded() -> None:
    assert window("vllm", "vllm-0.32.0", "ngram") == Counts(
        steps=340,
        accepted=464,
        drafted=1020,
        per_position=(204, 149, 111),
        requests=8,
        prompt_tokens=321,
        generated_tokens=1653,
    )
    assert VLLM.sources[0].draft_length(page("vllm", "vllm-0.32.0", "ngram.before")) == 3
    assert VLLM.request_counts(recorded("vllm-0.32.0/chat.json")) == RequestCounts(
        steps=11, accepted=28, drafted=29, histogram=[0, 2, 1, 8], reported=1 + 28 / 11
    )


@pytest.mark.parametrize(
    ("name", "steps", "accepted", "generated"),
    [
        ("self", 194, 488, 692),
        ("standalone", 669, 20, 699),
        ("eagle3", 689, 0, 699),
        ("ngram", 447, 245, 702),
    ],
)
def test_sglang_recorded(name: str, steps: int, accepted: int, generated: int) -> None:
    assert window("sglang", "sglang-0.5.23", name) == Counts(
        steps=steps,
        accepted=accepted,
        requests=10,
        prompt_tokens=353,
        generated_tokens=generated,
        delivered_only=True,
    )


@pytest.mark.parametrize(("name", "n"), [("self", 3), ("eagle3", 3), ("ngram", 7)])
def test_sglang_tells_n_once_it_has_logged(name: str, n: int) -> None:
    length = SGLANG.sources[0].draft_length
    assert length(page("sglang", "sglang-0.5.23", f"{name}.before")) is None
    assert length(page("sglang", "sglang-0.5.23", f"{name}.after")) == n


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("self", RequestCounts(19, 44, 57, [3, 1, 2, 13], 64 / 19)),
        ("eagle3", RequestCounts(63, 0, 189, [63], 64 / 63)),
        ("standalone", RequestCounts(61, 2, 183, [59, 2], 64 / 61)),
    ],
)
def test_sglang_requests_recorded(name: str, counts: RequestCounts) -> None:
    """Its own acceptance length counts the prefill's token; ours doesn't."""
    found = SGLANG.request_counts(recorded(f"sglang-0.5.23/{name}.generate.json"))
    assert found == counts
    assert counts.accepted + counts.steps == 63


@pytest.mark.parametrize(
    "figures",
    [
        {"steps": True},
        {"steps": "4"},
        {"accepted": -1},
        {"accepted": 2**53},
        {"accepted": 1.5},
        {"drafted": "12"},
        {"histogram": [1, None]},
        {"reported": "2.5"},
    ],
)
def test_a_requests_figures_are_counts(figures: dict[str, Any]) -> None:
    sound = {"steps": 4, "accepted": 6, "drafted": 12, "histogram": [1, 3], "reported": 2.5}
    RequestCounts(**sound)
    with pytest.raises(TypeError, match="should be"):
        RequestCounts(**{**sound, **figures})


@pytest.mark.parametrize(
    ("topk", "rows", "n", "drafts"), [("1", "4", 3, None), ("2", "8", 3, 7), ("4", "16", 3, 15)]
)
def test_sglang_says_the_size_of_a_tree(topk: str, rows: str, n: int, drafts: int | None) -> None:
    words = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d"
    words += f" --speculative-num-steps 3 --speculative-eagle-topk {topk}"
    found = SGLANG.speculation([*words.split(), "--speculative-num-draft-tokens", rows])
    assert (found.num_speculative_tokens, found.drafts_per_step) == (n, drafts)


@pytest.mark.parametrize("accepted", sglang.NAMES["accepted"])
@pytest.mark.parametrize("place", ["details", "meta_info", "choice"])
def test_sglang_field_names_of_every_release(accepted: str, place: str) -> None:
    figures = {"spec_verify_ct": 5, accepted: 7}
    answer = {
        "details": {"sglext": {"spec_tokens_details": figures}},
        "meta_info": {"meta_info": figures},
        "choice": {"choices": [{"meta_info": figures}]},
    }[place]
    assert SGLANG.request_counts(answer) == RequestCounts(5, 7, None)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": []},
        {"meta_info": {"spec_verify_ct": 5}},
        {"sglext": None},
        {"choices": [{}]},
    ],
)
def test_sglang_without_figures(answer: dict[str, Any]) -> None:
    assert SGLANG.request_counts(answer) is None


def test_sglang_information_recorded() -> None:
    info = recorded("sglang-0.5.23/eagle3.server_info.json")
    assert SGLANG.info(info) == Speculation("eagle3", 3, "head", prefix_caching=False)
    values = [r.value for r in SGLANG.reported(page("sglang", "sglang-0.5.23", "self.after"), info)]
    assert values == [3.1951219512195124, 1.0]


@pytest.mark.parametrize(
    ("arguments", "method", "n"),
    [
        ("--speculative-algorithm EAGLE3 --speculative-num-draft-tokens 4", "eagle3", 3),
        ("--speculative_algorithm=NGRAM --speculative-num-draft-tokens=8", "ngram", 7),
        ("--speculative-algorithm EAGLE --speculative-num-draft-tokens 3", "mtp", 2),
        ("--speculative-algorithm NEXTN", "mtp", None),
        ("--speculative-algorithm DSPARK --speculative-dspark-block-size 5", "dspark", 5),
        (
            "--speculative-algorithm EAGLE3 --speculative-eagle-topk 2 "
            "--speculative-num-steps 3 --speculative-num-draft-tokens 6",
            "eagle3",
            3,
        ),
    ],
)
def test_sglang_arguments(arguments: str, method: str, n: int | None) -> None:
    found = SGLANG.speculation(arguments.split())
    assert (found.method, found.num_speculative_tokens) == (method, n)


def test_lossy_thresholds_of_sglang_are_not_real() -> None:
    words = "--speculative-algorithm EAGLE3 --speculative-accept-threshold-acc 0.9"
    assert SGLANG.speculation(words.split()).not_real == ("speculative_accept_threshold_acc=0.9",)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], Speculation(prefix_caching=True)),
        (["--no-enable-prefix-caching"], Speculation(prefix_caching=False)),
        (
            ["-sc", '{"method": "deepseek_mtp", "num_speculative_tokens": 2}'],
            Speculation("mtp", 2, prefix_caching=True),
        ),
        (
            ["--speculative-config.method", "eagle3", "--speculative-config.model=head"],
            Speculation("eagle3", draft_model="head", prefix_caching=True),
        ),
        (
            ["--spec-method", "ngram", "--spec-tokens", "4"],
            Speculation("ngram", 4, prefix_caching=True),
        ),
        (
            ["--speculative-config", '{"rejection_sample_method": "fly"}'],
            Speculation(
                rejection_sample_method="fly",
                not_real=("rejection_sample_method=fly",),
                prefix_caching=True,
            ),
        ),
        (
            ["--speculative-config", '{"synthetic_acceptance_length": 2.5}'],
            Speculation(not_real=("synthetic_acceptance_length=2.5",), prefix_caching=True),
        ),
        (
            ["--speculative-config", '{"num_speculative_tokens_per_batch_size": "8:1"}'],
            Speculation(
                varying=("num_speculative_tokens_per_batch_size=8:1",), prefix_caching=True
            ),
        ),
    ],
)
def test_vllm_arguments(arguments: list[str], found: Speculation) -> None:
    assert VLLM.speculation(["vllm", "serve", "m", *arguments]) == found


def test_trt_reads_the_yaml_that_its_command_line_names(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "speculative_config: {decoding_type: Eagle3, max_draft_len: 3, speculative_model: head,"
        " use_relaxed_acceptance_for_thinking: true, acceptance_rate_window_size: 10}\n"
    )
    expected = Speculation(
        "eagle3",
        3,
        "head",
        not_real=("use_relaxed_acceptance_for_thinking=true",),
        varying=("acceptance_rate_window_size=10",),
    )
    for words in (["--config", str(config)], [f"--extra_llm_api_options={config}"]):
        assert load("trtllm").speculation(["trtllm-serve", "m", *words]) == expected
    assert load("trt").speculation(["trtllm-serve", "--config", "/none"]) == Speculation()


def test_trt_iterations_that_fall_are_a_restart() -> None:
    stats = {"numDraftTokens": 0, "numAcceptedTokens": 0, "numRequestsWithDraftTokens": 0}
    rows = [{"iter": n, "specDecodingStats": stats} for n in (8, 3)]
    with pytest.raises(NotMeasured, match="iteration 3 after 8: the server restarted"):
        trt.read_iterations(json.dumps(rows), "u", "application/json", {})


def test_trt_counts_rank_zero_and_drafting_iterations_only() -> None:
    def row(number: int, rank: int, drafted: int, accepted: int, requests: int) -> dict[str, Any]:
        names = ("numDraftTokens", "numAcceptedTokens", "numRequestsWithDraftTokens")
        stats = dict(zip(names, (drafted, accepted, requests), strict=True))
        return {"iter": number, "attentionDpRank": rank, "specDecodingStats": stats}

    rows = [row(1, 0, 6, 3, 2), row(1, 1, 6, 3, 2), row(2, 0, 0, 9, 9), row(3, 0, 3, 0, 1)]
    found = trt.read_iterations(json.dumps(rows), "u", "application/json", {})
    assert trt.iteration_counts(found) == Counts(steps=3, accepted=3, drafted=9)


@pytest.mark.parametrize("text", ["{}", "[1]", "# HELP", '[{"iter": NaN}]'])
def test_trt_refuses_what_is_no_list_of_iterations(text: str) -> None:
    with pytest.raises(NotMeasured, match="enable_iter_perf_stats"):
        trt.read_iterations(text, "u", "", {})


def test_atom_contradicting_itself_is_no_measurement() -> None:
    deltas = {
        Series("u", atom.STEPS, (("accepted_tokens", "2"),)): 10.0,
        Series("u", atom.ACCEPTED, ()): 19.0,
    }
    with pytest.raises(NotMeasured, match="adds up to 20 accepted tokens"):
        atom.counts(deltas)


def test_other_command_lines() -> None:
    words = "--method mtp --num-speculative-tokens 3 --spec-decode-acceptance-length 2.5"
    found = load("atom").speculation(words.split())
    assert (found.method, found.num_speculative_tokens) == ("mtp", 3)
    assert found.not_real == ("--spec-decode-acceptance-length=2.5",)
    words = "llama-server --spec-type draft-mtp,ngram-mod --spec-draft-n-max 3 --spec-synth-len 2"
    found = load("llamacpp").speculation(words.split())
    assert (found.method, found.num_speculative_tokens) == ("ngram", 3)
    assert found.not_real == ("--spec-synth-len=2",)
    assert len(found.varying) == 2


def test_forced_acceptance_of_an_environment() -> None:
    environ = {
        "SGLANG_SIMULATE_ACC_LEN": "2.5",
        "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.75",
        "ATOM_ENABLE_RELAXED_MTP": "0",
    }
    assert engines.forced_settings(environ) == [
        "SGLANG_SIMULATE_ACC_LEN=2.5",
        "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=1.75",
    ]
    assert engines.forced_lengths(environ) == [2.5, 2.75]
    assert engines.forced_lengths({"SGLANG_SIMULATE_ACC_LEN": "nan"}) == []


def test_keys_on_a_command_line_are_masked() -> None:
    words = ["vllm", "serve", "--api-key", "k1", "k2", "--port", "1", "--hf-token=t", "--api_key=k"]
    shown = ["vllm", "serve", "--api-key", "***", "***", "--port", "1", "--hf-token=***"]
    assert masked(words) == [*shown, "--api_key=***"]


def test_a_series_without_its_number_is_refused() -> None:
    names = ("drafts_total", "accepted_tokens_total", "accepted_tokens_per_pos_total")
    deltas = {Series("u", f"vllm:spec_decode_num_{name}", ()): 1.0 for name in names}
    with pytest.raises(NotMeasured, match="no numeric label"):
        VLLM.sources[0].counts(deltas)


def test_sources_keep_what_they_need() -> None:
    source = replace(VLLM.sources[0], refreshed="r", gauges=frozenset({"g"}))
    assert {"r", "g", "process_start_time_seconds"} <= source.kept
    assert "r" in source.shown
    assert "r" not in source.counters


def test_a_counter_that_is_not_there_is_not_a_count_of_none() -> None:
    from utils.acceptance.engines import total
    from utils.errors import NotMeasured

    with pytest.raises(NotMeasured, match="holds no vllm:spec_decode_num_drafts_total"):
        total({}, "vllm:spec_decode_num_drafts_total")
