"""Every cause is named by a record that has it, and not by a sound one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import run_files
from tests.al_records import merged, refilled, version_1, version_2
from utils import models, records
from utils.acceptance.engines import vllm
from utils.evals import validate_scores
from utils.golden import __main__ as command
from utils.golden import forensics, registry
from utils.golden.forensics import Finding, case_of, explain
from utils.golden.hypotheses import HYPOTHESES, LIKELY, POSSIBLE, SHOWN
from utils.golden.registry import Golden
from utils.records import Json

PROFILE = (0.70, 0.57)
SMALL = Path(__file__).parents[1] / "result_dirs"


def golden(**changes: Any) -> Golden:
    """What version_2() was measured against: 1000 steps, 700 and 570 accepted."""
    record = version_2()
    key = {
        "model": record["model"],
        "method": "mtp",
        "draft_model": "none",
        "draft_sample_method": "default",
        "rejection_sample_method": "default",
        "thinking": "on",
        "num_speculative_tokens": 2,
        **registry.flat_workload(
            {
                name: record["workload"][name]
                for name in (
                    *("dataset", "dataset_revision", "prompts_sha256", "prompts", "turns"),
                    *("endpoint", "sampling", "chat_template_kwargs"),
                )
            }
        ),
        "category": "coding",
        "output_len": 4096,
    }
    return Golden(
        file="dsv4_mtp.yaml",
        key={**key, **{name: value for name, value in changes.items() if name in key}},
        prefix="dsv4",
        imported=False,
        source="here",
        acceptance_length=changes.get("al", 2.27),
        run_lengths=(2.27,),
        profile=changes.get("profile", PROFILE),
    )


GOLDENS = (
    golden(),
    golden(num_speculative_tokens=1, al=1.70, profile=(0.70,)),
    golden(thinking="off", al=2.60, profile=(0.90, 0.70)),
)


def found(record: Json, plan: Json | None = None, goldens: Sequence[Golden] = GOLDENS) -> list[Any]:
    return [(f.name, f.strength) for f in explain(case_of(record, goldens, plan))]


def test_a_sound_record_is_accused_of_nothing() -> None:
    assert found(version_2()) == []
    text = "\n".join(forensics.lines(case_of(version_2(), GOLDENS)))
    assert "nothing in the record stands out" in text
    assert all(hypothesis.name in text for hypothesis in HYPOTHESES)


def counter(record: Json, name: str, more: float) -> Json:
    """Raise a counter of the last scrape."""
    for sample in record["raw"]["after"]["samples"]:
        if sample["name"] == name:
            sample["value"] += more
    return refilled(record)


def answered(record: Json, **fields: Any) -> Json:
    """Every answer with other fields; derived again."""
    for row in record["raw"]["requests"]:
        row.update(fields)
    return refilled(record)


def argv(**config: Any) -> Json:
    words = ["vllm", "serve", "m", "--no-enable-prefix-caching"]
    return {"argv": [*words, "--speculative-config", json.dumps(config)]}


def forced() -> Json:
    """Forty requests that all accept the same, as dice of one probability do."""
    return version_2(per_position=(14000, 11400), steps=20000, requests=40)


LOOP = "def f(x):\n    return f(x)\n" * 60
CASES: list[tuple[str, Json, Json | None, list[Any]]] = [
    ("drafter_inactive", version_2(per_position=(0, 0)), None, [("drafter_inactive", SHOWN)]),
    (
        "hardly anything accepted",
        version_2(per_position=(40, 20)),
        None,
        [("drafter_inactive", LIKELY), ("first_position_collapse", LIKELY)],
    ),
    (
        "arguments of another N",
        version_2(server=argv(method="mtp", num_speculative_tokens=1)),
        None,
        [("wrong_n", SHOWN)],
    ),
    (
        "plan of another N",
        version_2(),
        {"num_speculative_tokens": 3},
        [("wrong_n", SHOWN)],
    ),
    (
        "read back another N",
        version_2(error="N of the server is 1, asked for 2", reason="read_back"),
        None,
        [("wrong_n", SHOWN)],
    ),
    (
        "positions end at 1",
        version_2(per_position=(700, 0)),
        None,
        [("wrong_n", LIKELY), ("later_positions_collapse", LIKELY)],
    ),
    (
        "nothing reasons",
        answered(version_2(), reasoning=""),
        None,
        [("wrong_thinking", SHOWN)],
    ),
    (
        "reasons though off",
        version_2(thinking_mode="off", per_position=(900, 700)),
        None,
        [("wrong_thinking", SHOWN)],
    ),
    (
        "AL of the other mode",
        version_2(per_position=(900, 700)),
        None,
        [("wrong_thinking", POSSIBLE)],
    ),
    (
        "other kwargs",
        version_2(workload={"chat_template_kwargs": {"thinking": False}}),
        None,
        [("wrong_thinking", LIKELY)],
    ),
    (
        "greedy",
        version_2(workload={"sampling": {"temperature": 0.0, "top_p": 1.0}}),
        None,
        [("sampling_mismatch", SHOWN)],
    ),
    (
        "other draft sampling",
        version_2(speculation={"draft_sample_method": "probabilistic"}),
        None,
        [("sampling_mismatch", SHOWN)],
    ),
    (
        "completions",
        version_2(workload={"endpoint": "completions"}),
        None,
        [("template_missing", SHOWN)],
    ),
    (
        "marks of a template",
        answered(version_2(), text="<|im_start|>assistant hello"),
        None,
        [("template_missing", LIKELY)],
    ),
    (
        "never ends",
        answered(version_2(), finish_reason="length"),
        None,
        [("template_missing", POSSIBLE)],
    ),
    (
        "asked for",
        version_2(),
        {"synthetic_acceptance": True},
        [("synthetic_acceptance", SHOWN)],
    ),
    (
        "forced by arguments",
        version_2(
            server=argv(
                method="mtp",
                num_speculative_tokens=2,
                rejection_sample_method="synthetic",
                synthetic_acceptance_length=2.27,
            )
        ),
        None,
        [("synthetic_acceptance", SHOWN)],
    ),
    (
        "forced by environment",
        refilled(version_2(server={"forced_acceptance_lengths": [2.27]})),
        None,
        [("synthetic_acceptance", SHOWN)],
    ),
    ("dice", forced(), None, [("other_prompts", SHOWN), ("synthetic_acceptance", LIKELY)]),
    (
        "foreign traffic",
        counter(version_2(), vllm.REQUESTS, 1),
        None,
        [("foreign_traffic", SHOWN)],
    ),
    (
        "other prompts",
        version_2(workload={"dataset": "humaneval-proxy"}),
        None,
        [("other_prompts", SHOWN)],
    ),
    (
        "other draft",
        version_2(speculation={"draft_model": "somebody/else"}),
        None,
        [("another_drafter", SHOWN)],
    ),
    ("loops", answered(version_2(), text=LOOP), None, [("degenerate_loops", POSSIBLE)]),
    (
        "first position",
        version_2(per_position=(350, 285)),
        None,
        [("first_position_collapse", LIKELY)],
    ),
    (
        "later positions",
        version_2(per_position=(690, 200)),
        None,
        [("later_positions_collapse", LIKELY)],
    ),
    ("two ranks", version_2(), {"topology": {"engines": 2}}, [("topology", POSSIBLE)]),
    (
        "prefix cache",
        version_2(server={"prefix_caching": True}),
        None,
        [("topology", POSSIBLE)],
    ),
]


@pytest.mark.parametrize(
    ("record", "plan", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_names_the_cause(record: Json, plan: Json | None, expected: list[Any]) -> None:
    assert found(record, plan) == expected


def test_every_hypothesis_has_a_case() -> None:
    named = {name for case in CASES for name, _ in case[3]}
    assert named == {hypothesis.name for hypothesis in HYPOTHESES}


def one(record: Json, name: str, **more: Any) -> Finding:
    return next(f for f in explain(case_of(record, GOLDENS, **more)) if f.name == name)


def test_loops_that_explain_the_miss_are_likely() -> None:
    """One request of four loops, accepts everything, and hides that the rest is as ever."""
    record = version_2(per_position=(775, 678), steps=1000)
    rows = record["raw"]["requests"]
    rows[0].update(text=LOOP)
    for row, accepted in zip(rows, (500, 318, 318, 317), strict=True):
        row["spec"]["accepted"] = accepted
    finding = one(record, "degenerate_loops")
    assert finding.strength is LIKELY
    assert "1 of 4 outputs go round in loops; without them the AL is 2.2707" in finding.evidence


def test_a_step_too_many_each_request_is_what_several_engines_do() -> None:
    """Of 254 steps a request each has some that nothing was drafted for."""
    record = version_2(per_position=(70, 57), steps=120, requests=20)
    assert record["acceptance_length"] == pytest.approx(2.0583, abs=1e-4)
    finding = one(record, "topology", plan={"topology": {"engines": 2}})
    assert finding.strength is LIKELY
    assert "without one empty step a request the AL would be 2.2700" in finding.evidence


def test_engines_are_counted_by_their_label() -> None:
    """A start time has no label of an engine, and makes no engine."""
    record = version_2()
    samples = record["raw"]["after"]["samples"]
    samples.append({**samples[0], "name": "process_start_ticks", "labels": {}})
    assert case_of(record, GOLDENS).ranks == 1
    samples.append({**samples[0], "labels": {"engine": "1"}})
    assert case_of(record, GOLDENS).ranks == 2
    assert found(record) == [("topology", POSSIBLE)]


def test_look_up_settings_are_compared_with_the_collections() -> None:
    row = {"golden": "dsv4_mtp.yaml", "speculation": {"prompt_lookup_max": 4}}
    server = argv(method="ngram", num_speculative_tokens=2, prompt_lookup_max=2)
    record = version_2(server=server)
    finding = one(record, "another_drafter", collections={"x": row})
    assert finding.evidence == (
        "the server speculates with prompt_lookup_max 2, the golden was collected with 4",
    )
    dotted = {"argv": [*server["argv"], "--speculative-config.prompt_lookup_max", "1"]}
    told = one(version_2(server=dotted), "another_drafter", collections={"x": row})
    assert "prompt_lookup_max 1, the golden" in str(told)
    broken = version_2(server={"argv": ["vllm", "serve", "m", "--speculative-config", "{bad"]})
    assert case_of(broken, GOLDENS, collections={"x": row}).other_settings == {}
    same = argv(method="ngram", num_speculative_tokens=2, prompt_lookup_max=4)
    case = case_of(version_2(server=same), GOLDENS, collections={"x": row})
    assert explain(case) == []


def test_first_position_says_how_much_it_explains() -> None:
    finding = one(version_2(per_position=(350, 285)), "first_position_collapse")
    assert "position 1 is accepted in 35.0% of the steps, the golden's in 70.0%" in str(finding)
    assert "which is 100% of the loss" in str(finding)
    assert "accepted given the one before: 0.350 0.814, golden 0.700 0.814" in str(finding)


def test_a_published_curve_implies_a_profile() -> None:
    goldens = registry.load(registry.FOLDER).goldens
    text = "\n".join(forensics.lines(case_of(version_2(per_position=(400, 240)), goldens)))
    assert "first_position_collapse" in text
    assert "golden 0.790 0.608 (inferred from its curve)" in text


def test_a_curve_that_lacks_an_n_implies_none() -> None:
    goldens = [
        g
        for g in registry.load(registry.FOLDER).goldens
        if (g.prefix, g.key["num_speculative_tokens"]) != ("dsv4", 1)
    ]
    names = dict(found(version_2(per_position=(400, 240)), goldens=goldens))
    assert "first_position_collapse" not in names


def test_a_few_percent_less_are_no_collapse() -> None:
    assert found(version_2(per_position=(680, 552))) == []


def test_shown_comes_before_likely() -> None:
    record = version_2(
        per_position=(350, 285), workload={"sampling": {"temperature": 0.0, "top_p": 1.0}}
    )
    assert found(record) == [("sampling_mismatch", SHOWN), ("first_position_collapse", LIKELY)]


@pytest.mark.parametrize("goldens", [(), GOLDENS[1:2]])
def test_without_a_golden_it_says_so(goldens: Sequence[Golden]) -> None:
    text = "\n".join(forensics.lines(case_of(version_2(), goldens)))
    assert "its model has no golden of this mode and N" in text


def test_a_failed_record_and_one_of_version_1_are_read() -> None:
    gone = merged(version_2(), {"raw": {"before": None, "after": None, "requests": []}})
    failed = {**gone, "error": "gone", "reason": "unreachable"}
    failed.update(acceptance_length=None, accepted_tokens=None, verify_steps=None)
    assert next(iter(forensics.lines(case_of(failed, GOLDENS)))).startswith("no AL (gone)")
    assert found(version_1(1.01)) == [("drafter_inactive", LIKELY)]


class TestCommands:
    """Both ways to ask."""

    def explain(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
        path = tmp_path / "al.json"
        records.write_json(path, version_2(per_position=(350, 285)))
        folder = str(SMALL / "golden")
        assert command.main(["explain", str(path), "--golden", folder, *more]) == 0
        return capsys.readouterr().out

    def test_explain_reads_the_plan_beside_the_record(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "topology" not in self.explain(tmp_path, capsys).partition("nothing speaks")[0]
        topology = {"tp": 2, "ep_size": 1, "dp_attention": True, "engines": 2}
        records.write_json(tmp_path / "plan.json", run_files.plan(topology=topology))
        assert "2 engines share the load" in self.explain(tmp_path, capsys)

    def test_explain_takes_another_plan(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        records.write_json(tmp_path / "other.json", run_files.plan(synthetic_acceptance=True))
        text = self.explain(tmp_path, capsys, "--plan", str(tmp_path / "other.json"))
        assert text.splitlines()[1].startswith("1. synthetic_acceptance (shown): the plan asks")

    def test_the_gate_explains_a_miss(self, capsys: pytest.CaptureFixture[str]) -> None:
        status = validate_scores.main(
            [
                *("--results-dir", str(SMALL / "fail" / "e9_drafter_inactive")),
                *("--golden", str(SMALL / "golden"), "--explain", "AL off N=3"),
                *("--thresholds", str(SMALL / "thresholds.yaml")),
            ]
        )
        [shown] = [json.loads(capsys.readouterr().out)]
        assert status == 1
        assert shown["causes"][1].startswith("1. drafter_inactive (shown): none of the draft")


def test_the_demos_drafter_made_worse_is_named() -> None:
    """The profile that one-token look-ups had on the real vLLM, beside the committed golden."""
    path = registry.FOLDER / "smollm2_ngram.yaml"
    [stored, *_] = registry.read(path)
    [entry, *_] = records.read_yaml(path, "golden")["entries"]
    sent = {k: v for k, v in entry["workload"].items() if k not in ("category", "output_len")}
    record = version_2(
        per_position=(3730, 2670, 2110),
        steps=10_000,
        requests=32,
        model="HuggingFaceTB/SmolLM2-135M-Instruct",
        model_prefix="smollm2",
        thinking_mode="off",
        output_len=129,
        speculation={"method": "ngram"},
        workload={**sent, "proxy": True},
        server=argv(
            method="ngram", num_speculative_tokens=3, prompt_lookup_min=1, prompt_lookup_max=1
        ),
    )
    record["workload"]["sampling"] = entry["workload"]["sampling"]
    record["workload"]["chat_template_kwargs"] = {}
    for row in record["raw"]["requests"]:
        row["reasoning"] = ""
    collections = records.read_yaml(models.MODELS_FILE, "models")["collections"]
    case = case_of(refilled(record), [stored], collections=collections)
    named = [(finding.name, finding.strength) for finding in explain(case)]
    assert named[0] == ("another_drafter", SHOWN)
    assert ("first_position_collapse", LIKELY) in named
