from __future__ import annotations

import json

import pytest

from utils.errors import UsageError
from utils.recipes import speculate, speculation

DRAFT = "draft_model=org/draft"


def arguments(engine: str, *words: str) -> list[str]:
    method, number, *keys = words
    return speculation.parse(engine, method, number, keys).arguments()


def test_vllm_takes_sorted_json_with_numbers_as_numbers() -> None:
    words = ("ngram", "3", "prompt_lookup_min=2", "prompt_lookup_max=4")
    assert arguments("vllm", *words) == [
        "--speculative-config",
        '{"method": "ngram", "num_speculative_tokens": 3,'
        ' "prompt_lookup_max": 4, "prompt_lookup_min": 2}',
    ]


@pytest.mark.parametrize("key", ["model", "draft_model"])
def test_vllm_calls_the_draft_model(key: str) -> None:
    config = json.loads(arguments("vllm", "eagle3", "2", f"{key}=org/draft")[1])
    assert config == {"method": "eagle3", "num_speculative_tokens": 2, "model": "org/draft"}


@pytest.mark.parametrize("said", [True, False])
def test_vllm_takes_truth_as_truth(said: bool) -> None:
    config = json.loads(
        arguments("vllm", "eagle3", "2", DRAFT, f"parallel_drafting={said}".lower())[1]
    )
    assert config["parallel_drafting"] is said


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("mtp", "3"), "algorithm EAGLE num-steps 3 eagle-topk 1 num-draft-tokens 4"),
        (
            ("eagle3", "2", DRAFT),
            "algorithm EAGLE3 draft-model-path org/draft"
            " num-steps 2 eagle-topk 1 num-draft-tokens 3",
        ),
        (
            ("draft_model", "1", DRAFT),
            "algorithm STANDALONE draft-model-path org/draft"
            " num-steps 1 eagle-topk 1 num-draft-tokens 2",
        ),
        (("ngram", "7"), "algorithm NGRAM num-draft-tokens 8"),
        (("dspark", "7"), "algorithm DSPARK dspark-block-size 7"),
    ],
)
def test_sglang(words: tuple[str, ...], options: str) -> None:
    pairs = options.split()
    expected = [
        text
        for name, value in zip(pairs[::2], pairs[1::2], strict=True)
        for text in (f"--speculative-{name}", value)
    ]
    assert arguments("sglang", *words) == expected


@pytest.mark.parametrize(
    ("engine", "words", "message"),
    [
        ("vlm", ("mtp", "2"), "no engine 'vlm'; did you mean vllm?"),
        ("vllm", ("mpt", "2"), "unknown method 'mpt'; did you mean mtp?"),
        ("vllm", ("none", "2"), "unknown method 'none'"),
        ("sglang", ("dflash", "3", DRAFT), "unknown method 'dflash'"),
        ("vllm", ("dflash", "3"), "method dflash needs draft_model="),
        ("vllm", ("eagle3", "2", DRAFT, "parallel_drafting=1"), "want true or false"),
        ("vllm", ("mtp", "0"), "N is '0', want a whole number above 0"),
        ("vllm", ("mtp", "2.0"), "N is '2.0'"),
        ("vllm", ("mtp", "²"), "N is '²'"),
        ("vllm", ("mtp", "2", "draft_sample_methd=greedy"), "mean draft_sample_method"),
        ("vllm", ("mtp", "2", "draft_sample_method=greddy"), "did you mean greedy?"),
        ("vllm", ("mtp", "2", "rejection_sample_method=synthetic"), "known: block, standard"),
        ("vllm", ("mtp", "2", "revision="), "revision is ''"),
        ("vllm", ("mtp", "2", "revision=a\nb"), "want printable text"),
        ("vllm", ("mtp", "2", "synthetic_acceptance_length=2"), "has no key"),
        ("vllm", ("ngram", "2", "prompt_lookup_max=x"), "prompt_lookup_max is 'x'"),
        ("vllm", ("ngram", "2", DRAFT), "ngram has no draft model"),
        ("vllm", ("eagle3", "2"), "eagle3 needs draft_model="),
        ("sglang", ("draft_model", "2"), "draft_model needs draft_model="),
        ("vllm", ("eagle3", "2", DRAFT, "model=x"), "draft_model is given twice"),
        ("sglang", ("ngram", "2", "prompt_lookup_max=4"), "sglang has no key"),
    ],
)
def test_refuses(engine: str, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match="speculate: ") as caught:
        arguments(engine, *words)
    assert message in str(caught.value)


def test_command_prints_one_word_each(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--engine", "sglang", "--method", "mtp", "--num", "1"]
    assert speculate.main(argv) == 0
    assert capsys.readouterr().out.split("\0") == [*arguments("sglang", "mtp", "1"), ""]


def test_a_label_must_agree() -> None:
    argv = ["--engine", "vllm", "--method", "mtp", "--num", "1"]
    assert speculate.main([*argv, "--label", "mtp"]) == 0
    with pytest.raises(UsageError, match="SPEC_DECODING is 'none'"):
        speculate.main([*argv, "--label", "none"])
