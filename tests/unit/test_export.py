"""Golden AL → an engine's setting: exact words, limits, and the read-back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from utils.acceptance.argv import option
from utils.errors import UsageError
from utils.golden import __main__ as command
from utils.golden import export, registry
from utils.golden.registry import Golden
from utils.recipes import catalogue, speculation
from utils.verdicts import Outcome

GOLDENS = registry.load(registry.FOLDER).goldens
PROBABILISTIC = {"draft_sample_method": "probabilistic", "rejection_sample_method": "block"}


def golden(prefix: str, n: int, thinking: str = "on", **said: str) -> Golden:
    return export.choose(GOLDENS, prefix, thinking, n, said)


def printed(engine: str, chosen: Golden) -> tuple[dict[str, str], list[str]]:
    """Environment and arguments of what the command prints."""
    head, *rest = export.lines(engine, chosen)
    assert head.startswith("# AL ")
    exports = [line.removeprefix("export ") for line in rest if line.startswith("export ")]
    words = [line for line in rest if not line.startswith("export ")]
    return dict(line.split("=", 1) for line in exports), words


@pytest.mark.parametrize(
    ("engine", "environment", "words"),
    [
        (
            "sglang",
            {
                "SGLANG_SIMULATE_ACC_LEN": "2.27",
                "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
                "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
            },
            [
                "--speculative-algorithm EAGLE --speculative-num-steps 2 "
                "--speculative-eagle-topk 1 --speculative-num-draft-tokens 3"
            ],
        ),
        ("trtllm", {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.27"}, []),
        ("trt", {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.27"}, []),
        ("atom", {}, ["--spec-decode-acceptance-length 2.27"]),
        ("llamacpp", {}, ["--spec-synth-len 2.27"]),
    ],
)
def test_each_engines_words(engine: str, environment: dict[str, str], words: list[str]) -> None:
    assert printed(engine, golden("dsv4", 2)) == (environment, words)


def test_vllms_words() -> None:
    chosen = golden("kimik3", 3, **PROBABILISTIC)
    environment, [line] = printed("vllm", chosen)
    flag, _, text = line.partition(" ")
    assert (environment, flag) == ({}, "--speculative-config")
    assert json.loads(text.strip("'")) == {
        "method": "dspark",
        "model": "Inferact/Kimi-K3-DSpark",
        "num_speculative_tokens": 3,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": 3.0,
    }


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("chosen", [g for g in GOLDENS if g.imported], ids=str)
def test_arguments_pass_the_engines_own_parser(engine: str, chosen: Golden) -> None:
    """By the catalogue that was made from it."""
    newest = catalogue.load(engine, catalogue.versions(engine)[-1])
    said = speculation.parse(
        engine,
        chosen.key["method"],
        str(chosen.key["num_speculative_tokens"]),
        [f"draft_model={chosen.key['draft_model']}"] if chosen.key["draft_model"] else [],
    )
    how = export.forced(engine, chosen.acceptance_length, said.num_tokens)
    words = said.arguments(how.config)
    assert [problem.text for problem in newest.problems(words)] == []
    if engine == "vllm":
        config = json.loads(option(words, "--speculative-config") or "")
        assert config["synthetic_acceptance_length"] == chosen.acceptance_length


@pytest.mark.parametrize(
    ("engine", "length", "n", "words"),
    [
        ("vllm", 3.01, 2, "can't be reached"),
        ("trt", 0.99, 2, "can't be reached"),
        ("sglang", float("nan"), 2, "can't be reached"),
        ("tgi", 2.0, 2, "no setting for synthetic acceptance is known of 'tgi'"),
        ("vlm", 2.0, 2, "did you mean vllm"),
    ],
)
def test_what_cannot_be_forced(engine: str, length: float, n: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        export.forced(engine, length, n)


@pytest.mark.parametrize("length", [1.0, 3.0])
def test_both_ends_can_be_forced(length: float) -> None:
    name = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
    assert float(export.forced("trt", length, 2).environment[name]) == length - 1


class TestChoose:
    """Which golden a recipe's acceptance comes from."""

    def test_by_what_is_said_of_the_drafter(self) -> None:
        assert golden("kimik3", 3, **PROBABILISTIC).acceptance_length == 3.00
        assert golden("kimik3", 3, draft_sample_method="default").acceptance_length == 2.87

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("kimik3", 3), "agree equally; say draft_model"),
            (("glm5.2", 3, "off"), "no golden of glm5.2 with thinking off"),
            (("dsv4", 9), "num_speculative_tokens 9"),
            (("nobody", 1), "no golden of nobody"),
        ],
    )
    def test_none_or_several(self, arguments: Any, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            golden(*arguments)

    def test_another_method_has_another_golden(self) -> None:
        with pytest.raises(UsageError, match="method eagle3"):
            golden("dsv4", 2, method="eagle3")


PLAN = {
    "model_prefix": "kimik3",
    "spec_decoding": "dspark",
    "num_speculative_tokens": 3,
    "draft_model": "RedHatAI/Kimi-K3-speculator.dspark",
    **PROBABILISTIC,
}


class TestReadBack:
    """The realised AL against the target: 3.00 at N=3."""

    @pytest.mark.parametrize(
        ("measured", "steps", "outcome"),
        [
            (3.0, 10_000, Outcome.PASS),
            (3.1, 10_000, Outcome.PASS),
            (3.11, 10_000, Outcome.FAIL),
            (2.9, 10_000, Outcome.PASS),
            (2.89, 10_000, Outcome.FAIL),
            (2.0, 10_000, Outcome.FAIL),
            (float("nan"), 10_000, Outcome.FAIL),
            (2.81, 500, Outcome.PASS),
            (3.0, 499, Outcome.NOT_MEASURED),
            (None, None, Outcome.NOT_MEASURED),
        ],
    )
    def test_outcome(self, measured: float | None, steps: int | None, outcome: Outcome) -> None:
        target = export.of_plan(PLAN, GOLDENS, "on")
        verdict = export.read_back(target, measured, steps, "serving")
        assert (target.acceptance_length, verdict.outcome) == (3.0, outcome)
        assert "kimik3_dspark_probabilistic_block.yaml on N=3" in verdict.line()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--engine", "trtllm", "--model-prefix", "qwen3.5", "--thinking", "off"]
    assert command.main(["export", *words, "--num-spec-tokens", "5"]) == 0
    text = capsys.readouterr().out
    assert "AL 4.2000 of golden_al/qwen3.5_mtp.yaml off N=5" in text
    assert "export TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=3.2\n" in text
    with pytest.raises(UsageError, match="nothing after --"):
        command.main(["export", *words, "--num-spec-tokens", "5", "--", "x"])
