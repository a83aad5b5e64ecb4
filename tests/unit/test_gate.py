from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.al_records import merged, version_1, version_2
from utils import records
from utils.golden import cell_test, gate, match, registry
from utils.golden.gate import Judgement
from utils.records import Json
from utils.verdicts import Outcome

PUBLISHED = registry.load(registry.FOLDER)
MEASURED = registry.load(Path(__file__).parents[1] / "result_dirs" / "golden")
TOLERANCES = PUBLISHED.tolerances
EMPTY = {"time": "2026-12-01T10:00:00Z", "samples": []}


def judge(record: Json, goldens: registry.Registry = PUBLISHED) -> Judgement:
    return gate.judge(record, goldens)


def reason(record: Json, goldens: registry.Registry = PUBLISHED) -> str:
    verdict = judge(record, goldens).verdict
    assert verdict.outcome is Outcome.NOT_MEASURED
    return f"{verdict.reason}: {verdict.detail}"


def test_verdict_names_file_key_and_rule() -> None:
    judged = judge(version_1())
    assert judged.verdict.outcome is Outcome.PASS
    assert judged.reference == 2.27
    assert judged.verdict.source == (
        "golden_al/dsv4_mtp.yaml on N=2, imported from "
        "https://github.com/SemiAnalysisAI/InferenceX/actions/runs/27180633016, ±5%, shift +0.0%, "
        "98% interval -4.8%..+5.1%, spread assumed (1.5% a run)"
    )
    measured = judge(version_2(), MEASURED).verdict
    assert measured.outcome is Outcome.PASS
    assert measured.source == (
        "golden_al/dsv4_mtp.yaml on N=2, 1 run, point in ±5%: no spread is known"
    )


@pytest.mark.parametrize(
    ("al", "outcome", "why"),
    [
        (2.14, Outcome.FAIL, "below_golden"),
        (2.15, Outcome.INCONCLUSIVE, "undecided"),  # -5.3 %: chance could do that
        (2.18, Outcome.INCONCLUSIVE, "undecided"),  # -4.0 %, but -8 % could look like it
        (2.20, Outcome.PASS, ""),
        (2.34, Outcome.PASS, ""),
        (2.36, Outcome.INCONCLUSIVE, "undecided"),
        (2.39, Outcome.INCONCLUSIVE, "undecided"),
        (2.41, Outcome.FAIL, "above_golden"),
    ],
)
def test_published_values_have_a_spread_on_both_sides(
    al: float, outcome: Outcome, why: str
) -> None:
    verdict = judge(version_1(al, 100_000)).verdict
    assert (verdict.outcome, verdict.reason) == (outcome, why)
    assert (verdict.lower, verdict.upper) == pytest.approx((2.1565, 2.3835))
    assert "spread assumed" in verdict.source


def test_undecided_says_what_is_possible_and_what_helps() -> None:
    remedy = "measure again, against a golden with rows (python3 -m utils.golden collect)"
    inside = judge(version_1(2.18, 100_000)).verdict.detail
    assert inside == f"-4.0% from the golden 2.2700, but a shift of 8% can't be excluded; {remedy}"
    outside = judge(version_1(2.15, 100_000)).verdict.detail
    assert outside == f"-5.3% from the golden 2.2700, but chance can't be excluded; {remedy}"


@pytest.mark.parametrize("al", [1.9, 2.1])
def test_limits_are_inclusive(al: float) -> None:
    """Of a workload too small for any spread: the point decides."""
    key = {**PUBLISHED.goldens[0].key, "model": "deepseek-ai/DeepSeek-V4-Pro"}
    key.update({"num_speculative_tokens": 2, "sampling.temperature": 1.0, "prompts": 40})
    golden = registry.Golden("dsv4_mtp.yaml", key, "dsv4", True, "test", 2.0, ())
    verdict = judge(version_1(al), registry.Registry([golden], TOLERANCES)).verdict
    assert (verdict.outcome, verdict.lower, verdict.upper) == (Outcome.PASS, 1.9, 2.1)


def test_source_counts_the_runs() -> None:
    [golden] = [g for g in MEASURED.goldens if g.file == "dsv4_mtp.yaml"]
    more = replace(golden, run_lengths=(2.27, 2.26, 2.28, 2.25, 2.29))
    verdict = judge(version_2(), registry.Registry([more], TOLERANCES)).verdict
    assert verdict.source == (
        "golden_al/dsv4_mtp.yaml on N=2, 5 runs, ±5%, shift +0.0%, 98% interval -2.8%..+2.9%, "
        "spread of its 5 runs"
    )


def test_rows_on_both_sides_are_paired() -> None:
    [golden] = [g for g in MEASURED.goldens if g.file == "dsv4_mtp.yaml"]
    record = version_2(requests=8, workload={"prompts": 8})
    rows = tuple((a["spec"]["accepted"], a["spec"]["steps"]) for a in record["raw"]["requests"])
    paired = replace(golden, key={**golden.key, "prompts": 8}, rows=(rows,))
    judged = judge(record, registry.Registry([paired], TOLERANCES))
    assert judged.verdict.outcome is Outcome.PASS
    assert judged.verdict.source == (
        "golden_al/dsv4_mtp.yaml on N=2, 1 run, ±5%, shift +0.0%, 98% interval +0.0%..+0.0%, "
        "paired over 8 prompts"
    )
    better = replace(paired, rows=(tuple((a + 30, s) for a, s in rows),), acceptance_length=2.51)
    judged = judge(record, registry.Registry([better], TOLERANCES))
    assert judged.verdict.reason == "below_golden"
    assert judged.shift
    assert judged.golden is better


def test_the_records_own_verdict_is_never_believed() -> None:
    assert judge(version_1(1.5, passed=True)).verdict.outcome is Outcome.FAIL
    assert judge(version_1(passed=False)).verdict.outcome is Outcome.PASS


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-V4-Pro", "nobody/has-this"])
def test_inactive_drafter_fails_even_without_golden(model: str) -> None:
    verdict = judge(version_1(1.0, model=model, model_key=None)).verdict
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "drafter_inactive")


def test_inactive_drafter_fails_where_the_floor_would_reach_it() -> None:
    weak = registry.Golden("x_y.yaml", PUBLISHED.goldens[0].key, "", True, "s", 1.04, ())
    assert cell_test.limits(weak.acceptance_length, TOLERANCES).lower < 1.0
    assert judge(version_2((0, 0), requests=80)).verdict.reason == "drafter_inactive"


class TestVersion1:
    """Matches by model name, thinking and N; what it states must not contradict the golden."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"model": "/raid/weights/v4", "model_key": None},
            {"model": "/scratch/DeepSeek-V4-Pro", "model_prefix": None, "model_key": None},
            {"model": None},
            {"model": None, "model_prefix": None},
            {"model": None, "model_key": None},
            {"temperature": None, "category": None, "output_len": None},
        ],
    )
    def test_matches(self, changes: Json) -> None:
        assert judge(version_1(**changes)).reference == 2.27

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"temperature": 0.0}, "golden has sampling.temperature 1.0, the record 0.0"),
            ({"category": "math"}, "golden has category coding, the record math"),
            ({"output_len": 512}, "golden has output_len 4096, the record 512"),
            ({"num_speculative_tokens": 9}, "dsv4_mtp.yaml on N=8"),
            ({"model": "deepseek-ai/DeepSeek-V4-Pro-0813-x", "model_key": None}, "no golden of"),
            ({"model": "nvidia/V4", "model_key": "v4"}, "no golden of model nvidia/V4"),
        ],
    )
    def test_does_not_match(self, changes: Json, why: str) -> None:
        assert why in reason(version_1(**changes))
        assert reason(version_1(**changes)).startswith("no_golden")

    def test_another_mode_is_another_golden(self) -> None:
        assert judge(version_1(2.61, thinking_mode="off")).reference == 2.61

    @pytest.mark.parametrize(
        ("model", "prefix"), [("kimi-k3", "kimik3"), ("minimax-m3", "minimaxm3")]
    )
    def test_two_goldens_of_one_model_are_ambiguous(self, model: str, prefix: str) -> None:
        record = version_1(model=None, model_key=model, model_prefix=prefix)
        assert reason(record).startswith("ambiguous_golden")

    def test_never_meets_a_proxy_golden(self) -> None:
        record = version_1(
            1.9, model=None, model_key="smollm2-135m-instruct", model_prefix="smollm2",
            thinking_mode="off", num_speculative_tokens=3, temperature=0.0, output_len=129,
        )  # fmt: skip
        assert "dataset humaneval-proxy, the record speed-bench" in reason(record, MEASURED)


class TestVersion2:
    """Equal in everything that the golden states."""

    def test_matches_an_imported_golden_on_what_that_states(self) -> None:
        assert judge(version_2(requests=80)).reference == 2.27

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"speculation": {"method": "eagle3"}}, "method"),
            ({"speculation": {"method": None}}, "method"),
            ({"speculation": {"draft_model": "x/y"}}, "draft_model"),
            ({"speculation": {"draft_sample_method": "greedy"}}, "draft_sample_method"),
            ({"speculation": {"rejection_sample_method": "block"}}, "rejection_sample_method"),
            ({"workload": {"dataset": "humaneval-proxy"}}, "dataset"),
            ({"workload": {"dataset_revision": "r2"}}, "dataset_revision"),
            ({"workload": {"prompts_sha256": "cd" * 32}}, "prompts_sha256"),
            (
                {
                    "temperature": 0.0,
                    "workload": {"sampling": {"temperature": 0.0, "top_p": 1.0}},
                },
                "temperature",
            ),
            ({"workload": {"sampling": {"temperature": 1.0}}}, "sampling.top_p"),
            (
                {"workload": {"sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 20}}},
                "sampling.top_k",
            ),
            ({"workload": {"chat_template_kwargs": {}}}, "chat_template_kwargs"),
            ({"workload": {"endpoint": "text"}}, "endpoint"),
            ({"workload": {"turns": "all"}}, "turns"),
            ({"output_len": 512}, "output_len"),
            ({"category": "math"}, "category"),
            ({"model_prefix": "dsv4-0813"}, "no golden of model"),
            ({"model": "nvidia/DeepSeek-V4-Pro-NVFP4"}, "no golden of model"),
        ],
    )
    def test_does_not_match(self, changes: Json, field: str) -> None:
        found = reason(merged(version_2(), changes), MEASURED)
        assert found.startswith("no_golden")
        assert field in found

    @pytest.mark.parametrize("mode", ["on", "off"])
    def test_mode_and_length_are_always_compared(self, mode: str) -> None:
        record = version_2((700,)) if mode == "on" else version_2()
        if mode == "off":
            record["thinking_mode"] = "off"
            for row in record["raw"]["requests"]:
                row["reasoning"] = ""
        assert reason(record, MEASURED).startswith("no_golden")

    def test_a_proxy_never_meets_a_speed_bench_golden(self) -> None:
        record = version_2(requests=80, workload={"dataset": "humaneval-proxy", "proxy": True})
        assert "dataset speed-bench, the record humaneval-proxy" in reason(record)
        renamed = version_2(requests=80, workload={"proxy": True})
        assert "the record of a proxy" in reason(renamed)

    @pytest.mark.parametrize(
        ("methods", "al"), [((None, None), 2.45), (("probabilistic", "block"), 2.51)]
    )
    def test_sampling_methods_tell_two_goldens_apart(
        self, methods: tuple[str | None, str | None], al: float
    ) -> None:
        draft, rejection = methods
        record = version_2(
            requests=80,
            model="moonshotai/Kimi-K3",
            model_prefix="kimik3",
            speculation={
                "method": "dspark",
                "draft_model": "/models/Kimi-K3-DSpark",
                "draft_sample_method": draft,
                "rejection_sample_method": rejection,
            },
            workload={"sampling": {"temperature": 1.0, "top_p": 0.95}},
        )
        assert judge(record).reference == al

    def test_one_variant_without_the_other_matches_neither(self) -> None:
        record = version_2(
            requests=80,
            model="moonshotai/Kimi-K3",
            model_prefix="kimik3",
            speculation={
                "method": "dspark",
                "draft_model": "Inferact/Kimi-K3-DSpark",
                "draft_sample_method": "probabilistic",
            },
            workload={"sampling": {"temperature": 1.0, "top_p": 0.95}},
        )
        assert reason(record).startswith("no_golden")

    def test_draft_models_tell_two_goldens_apart(self) -> None:
        record = version_2(
            requests=80,
            model="MiniMaxAI/MiniMax-M3",
            model_prefix="minimaxm3",
            speculation={"method": "eagle3", "draft_model": "Inferact/MiniMax-M3-EAGLE3-GQA"},
            workload={"sampling": {"temperature": 1.0, "top_p": 0.95, "top_k": 40}},
        )
        record["workload"]["chat_template_kwargs"] = {"thinking_mode": "enabled"}
        assert judge(record).reference == 2.39


class TestBadRecords:
    """judge() turns every bad record into a verdict."""

    @pytest.mark.parametrize(
        ("record", "name"),
        [
            ({**version_2(), "error": "no", "reason": "restart"}, "restart"),
            ({**version_2(), "error": "no", "reason": None}, "measurement_failed"),
            ({**version_2(), "framework": "unheard-of"}, "unusable_record"),
            ({**version_2(), "raw": {"before": None, "after": None, "requests": []}}, "no_window"),
            ({**version_2(), "raw": {}}, "wrong_shape"),
            ({**version_2(), "raw": None}, "wrong_shape"),
            ({**version_2(), "acceptance_length": 2.3}, "contradicts_itself"),
            ({**version_2(), "acceptance_length": math.nan}, "contradicts_itself"),
            ({**version_2(), "verify_steps": None}, "contradicts_itself"),
            ({**version_2(), "proposed_draft_tokens": 1999}, "contradicts_itself"),
            ({**version_2(), "temperature": 0.5}, "contradicts_itself"),
            (merged(version_2(), {"raw": {"before": EMPTY}}), "invalid_measurement"),
            (version_1(3.2), "impossible"),
            (version_1(proposed_draft_tokens=12_699), "contradicts_itself"),
            (version_1(accepted_tokens=None), "no_counts"),
            (version_1(accepted_tokens="12700"), "wrong_shape"),
            (version_1(num_speculative_tokens=None), "wrong_shape"),
            ({}, "wrong_shape"),
        ],
    )
    def test_becomes_a_verdict(self, record: Json, name: str) -> None:
        judged = judge(record)
        assert judged.verdict.outcome is Outcome.NOT_MEASURED
        assert judged.verdict.reason == name
        assert judged.reference is None

    def test_a_record_of_another_n_is_found_out_by_its_metrics(self) -> None:
        record = version_2((700, 300, 200, 140, 100, 60, 40), requests=80)
        record["num_speculative_tokens"] = 8
        assert reason(record).startswith("draft_length_is_the_servers: ")

    def test_fewer_requests_than_prompts_are_a_part_of_them(self) -> None:
        record = version_2(requests=4, workload={"prompts": 80, "requests": 4})
        assert reason(record).startswith("all_requests_succeeded: ")
        assert "4 of 80 succeeded" in reason(record)

    def test_a_broken_check_is_the_reason(self) -> None:
        record = version_2()
        record["raw"]["requests"][0]["completion_tokens"] += 1
        assert reason(record).startswith("server_generated_tokens_equal_ours")


@pytest.mark.parametrize(
    ("workload", "outcome", "why"),
    [
        ({"prompts": 1, "prompts_sha256": "cd" * 32}, Outcome.INCONCLUSIVE, "insufficient_sample"),
        ({"prompts": 1}, Outcome.INCONCLUSIVE, "insufficient_sample"),
        ({"prompts": 2, "prompts_sha256": "cd" * 32}, Outcome.NOT_MEASURED, "no_golden"),
        ({"prompts_sha256": "cd" * 32}, Outcome.NOT_MEASURED, "no_golden"),
        ({"prompts": 1, "turns": "all"}, Outcome.NOT_MEASURED, "no_golden"),
    ],
)
def test_a_part_of_the_prompts_is_no_sample(workload: Json, outcome: Outcome, why: str) -> None:
    """Less than half of the golden's four: inconclusive, but only where all else is equal."""
    record = version_2()
    record["workload"] = {**record["workload"], "requests": 4, **workload}
    verdict = judge(record, MEASURED).verdict
    assert (verdict.outcome, verdict.reason) == (outcome, why)
    assert verdict.measured == pytest.approx(2.27)


@pytest.mark.parametrize(("steps", "outcome"), [(500, Outcome.PASS), (499, Outcome.INCONCLUSIVE)])
def test_half_of_the_goldens_steps_are_needed(steps: int, outcome: Outcome) -> None:
    al = 1 + round(1.27 * steps) / steps
    record = version_2((round(0.7 * steps), round(1.27 * steps) - round(0.7 * steps)), steps)
    verdict = judge(record, MEASURED).verdict
    assert (verdict.outcome, verdict.measured) == (outcome, pytest.approx(al))


@pytest.mark.parametrize(("steps", "outcome"), [(312, Outcome.PASS), (310, Outcome.INCONCLUSIVE)])
def test_without_counts_two_standard_errors_must_fit(steps: int, outcome: Outcome) -> None:
    """(2 · N/2 / 0.1135)² = 310.6 for N=2 and an AL of 2.27."""
    verdict = judge(version_1(steps=steps)).verdict
    assert verdict.outcome is outcome


def test_early_means_nothing_in_a_version_1_file() -> None:
    assert judge(version_1(early={"looks": []})).verdict.outcome is Outcome.PASS


def test_a_mark_of_early_stopping_without_a_number_of_requests_is_a_whole_run() -> None:
    record = version_2(early={"looks": [], "undecidable": "x"})
    assert "requests" not in record["workload"]
    assert judge(record, MEASURED).verdict.outcome is Outcome.PASS


def test_what_a_record_does_not_say_is_called_none() -> None:
    record = version_2(speculation={"method": None})
    assert "golden has method mtp, the record none" in reason(record, MEASURED)


def test_nan_limits_pass_nothing() -> None:
    """Reading refuses them; a comparison must not need that."""
    floor = {"value": math.nan, "reason": "x"}
    tolerances = {**TOLERANCES, "relative_floor": floor}
    for sample in (0.0, math.nan):
        share = {"value": sample, "reason": "x"}
        broken = {**tolerances, "sample": {"min_share": share, "standard_errors": share}}
        found = judge(version_1(), registry.Registry(PUBLISHED.goldens, broken)).verdict
        assert found.outcome is Outcome.INCONCLUSIVE
        found = judge(version_2(), registry.Registry(MEASURED.goldens, broken)).verdict
        assert found.outcome is not Outcome.PASS


def test_builders_make_records_of_their_schema() -> None:
    assert records.schema_problem(version_1(), "al_record_v1") is None
    assert records.schema_problem(version_2(), "al_record_v2") is None


def test_no_golden_at_all() -> None:
    empty = registry.Registry([], TOLERANCES)
    assert "goldens of no model at all" in reason(version_1(), empty)
    assert match.SPEED_BENCH == "speed-bench"
