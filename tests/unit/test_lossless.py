"""Greedy outputs of two servers: alike, a numeric tie, or a verifier that is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.greedy import LENGTH, NEAR, GreedyServer
from tests.fakes.speculating import MODEL
from utils import records
from utils.errors import NotMeasured, UsageError
from utils.evals import speedbench
from utils.recipes import __main__ as recipes
from utils.recipes import lossless
from utils.serving import greedy
from utils.verdicts import Outcome


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speedbench.prepare_proxy(tmp_path_factory.mktemp("prompts")).parent


def record(prompts: Path, output: Path, method: str, *faults: str) -> Any:
    """What a server with these faults says."""
    with GreedyServer(faults=faults).running() as server:
        greedy.main(
            [
                *("--base-url", server.base_url, "--model", MODEL, "--model-prefix", "smollm2"),
                *("--spec-method", method, "--prompts-dir", str(prompts)),
                *("--num-prompts", "3", "--output", str(output)),
            ]
        )
    assert all(body["temperature"] == 0 and "stream" not in body for body in server.bodies)
    return records.read_json(output)


@pytest.fixture(scope="module")
def base(prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return record(prompts, tmp_path_factory.mktemp("base") / "greedy.json", "none")


def test_what_is_written_down(base: Any) -> None:
    assert (base["steps"], base["accepted"]) == (None, None)
    (first, _, _) = base["outputs"]
    assert first["tokens"][:2] == [" w0", " w1"]
    assert first["runners_up"][NEAR] == f" r{NEAR}"
    assert first["margins"] == [3.0] * NEAR + [0.125] + [3.0] * (LENGTH - NEAR - 1)


@pytest.mark.parametrize(
    ("faults", "outcome", "reason", "text"),
    [
        ((), Outcome.PASS, "", "3 of 3 prompts are the same to the last token"),
        (("accepts_anything",), Outcome.FAIL, "broken_verifier", "token 5 is ' w5', with"),
        (("accepts_runner_up",), Outcome.FAIL, "broken_verifier", "3.0000 nats behind: no tie"),
        (("cut",), Outcome.FAIL, "broken_verifier", "with speculation the end"),
        (("off",), Outcome.NOT_MEASURED, "nothing_accepted", "a drafter that is off"),
        (
            ("tie",),
            Outcome.INCONCLUSIVE,
            "too_little_compared",
            "3 part at a numeric tie, of 3 met",
        ),
    ],
)
def test_a_broken_verifier_is_told_from_a_tie(
    base: Any,
    prompts: Path,
    tmp_path: Path,
    faults: tuple[str, ...],
    outcome: Outcome,
    reason: str,
    text: str,
) -> None:
    speculated = record(prompts, tmp_path / "greedy.json", "mtp", *faults)
    _, verdict = lossless.judge(base, speculated)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert text in verdict.detail


def test_one_tie_among_alike_prompts_passes(base: Any) -> None:
    speculated = {**base, "spec_decoding": "mtp", "steps": 8, "accepted": 16}
    tied = {**base["outputs"][0], "tokens": [*base["outputs"][0]["tokens"]]}
    tied["tokens"][NEAR] = f" r{NEAR}"
    speculated["outputs"] = [tied, *base["outputs"][1:]]
    (parting,), verdict = lossless.judge(base, speculated)
    assert parting.tie and parting.index == NEAR
    assert verdict.outcome is Outcome.PASS
    assert f"{NEAR + 2 * LENGTH} of {3 * LENGTH} tokens compared" in verdict.detail


def test_past_the_bases_end_nobody_knows(base: Any) -> None:
    speculated = {**base, "spec_decoding": "mtp", "steps": 8, "accepted": 16}
    longer = {**base["outputs"][0], "tokens": [*base["outputs"][0]["tokens"], " more"]}
    speculated["outputs"] = [longer, *base["outputs"][1:]]
    (parting,), verdict = lossless.judge(base, speculated)
    assert (parting.base, parting.margin) == (None, None)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "unknown_margin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec_decoding": "none"}, "without speculation first"),
        ({"thinking": "on"}, "recorded in different ways: thinking 'off' and 'on'"),
        ({"prompts_sha256": "0" * 64}, "prompts_sha256"),
    ],
)
def test_outputs_that_cant_be_compared_are_refused(
    base: Any, change: dict[str, Any], message: str
) -> None:
    speculated = {**base, "spec_decoding": "mtp", "steps": 8, "accepted": 16, **change}
    with pytest.raises(UsageError, match=message):
        lossless.judge(base, speculated)


@pytest.mark.parametrize("change", [lambda outputs: outputs[:-1], lambda outputs: outputs[::-1]])
def test_outputs_of_other_prompts_are_refused(base: Any, change: Any) -> None:
    speculated = {**base, "spec_decoding": "mtp", "steps": 8, "accepted": 16}
    speculated["outputs"] = change(base["outputs"])
    with pytest.raises(UsageError, match="of other prompts, or in another order"):
        lossless.judge(base, speculated)


@pytest.mark.parametrize(
    ("fault", "message"),
    [("no_logprobs", "gives no log probabilities"), ("refuses", "HTTP 400: logprobs are not")],
)
def test_no_answer_is_no_record(prompts: Path, tmp_path: Path, fault: str, message: str) -> None:
    with pytest.raises(NotMeasured, match=message):
        record(prompts, tmp_path / "greedy.json", "none", fault)
    assert not list(tmp_path.iterdir())


def test_the_command(base: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speculated = {**base, "spec_decoding": "mtp", "steps": 8, "accepted": 16}
    paths = [tmp_path / "base.json", tmp_path / "mtp.json"]
    for path, data in zip(paths, (base, speculated), strict=True):
        records.write_json(path, data, "greedy_outputs")
    assert recipes.main(["lossless", *map(str, paths)]) == 0
    assert capsys.readouterr().out.startswith("PASS         lossless: broken_partings 0.0000")


def test_a_base_that_samples_is_refused(base: Any, tmp_path: Path) -> None:
    sampled = {**base["outputs"][0], "margins": [*base["outputs"][0]["margins"]]}
    sampled["margins"][3] = -0.75
    records.write_json(tmp_path / "base.json", {**base, "outputs": [sampled]}, "greedy_outputs")
    with pytest.raises(NotMeasured, match="not the likeliest: not greedy"):
        lossless.read(tmp_path / "base.json")


def test_columns_of_unequal_length_are_refused(base: Any, tmp_path: Path) -> None:
    base = {**base, "outputs": [{**base["outputs"][0], "margins": [0.5]}]}
    records.write_json(tmp_path / "base.json", base, "greedy_outputs")
    with pytest.raises(NotMeasured, match="columns of unequal length"):
        lossless.read(tmp_path / "base.json")


def test_how_the_server_speculates_must_be_said(prompts: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--spec-method none, or by which method"):
        record(prompts, tmp_path / "greedy.json", "")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"token": "a", "bytes": [97]}, "a"),
        ({"token": "\ufffd", "bytes": [0xE2, 0x82]}, "<e282>"),
        ({"token": "\ufffd", "bytes": None}, "\ufffd"),
    ],
)
def test_tokens_that_are_no_whole_character_are_told_apart(
    entry: dict[str, Any], text: str
) -> None:
    assert greedy.spelled(entry) == text
