"""The AL command on a real SGLang, with drafters whose acceptance is known beforehand."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.server import MODEL, Embedded, Server
from tests.engine.sglang_server import serve, speculative
from utils import records
from utils.acceptance.engines import sglang as adapter
from utils.acceptance.tally import Tally
from utils.evals import al_record, speedbench_al
from utils.recipes import lossless
from utils.serving import greedy

N = 3
PROMPTS = 4
TREE = 7  # draft tokens of a step that are a tree
HERE = Path(__file__).parent
# Offsets from the counting model's first token: where its drafter starts to be wrong, how often.
STUMBLES_FROM, STRIDE = 64, 5


def measure(
    server: Server, prompts: Path, output: Path, output_len: int, *more: str
) -> tuple[int, Any]:
    """Run the command; returns its status and the record."""
    status = speedbench_al.main(
        [
            "measure",
            *("--base-url", server.base_url, "--engine", "sglang", "--model", MODEL),
            *("--model-prefix", "smollm2", "--thinking", "off", "--num-spec-tokens", str(N)),
            *("--prompts", str(prompts), "--num-prompts", str(PROMPTS), "--concurrency", "4"),
            *("--output-len", str(output_len), "--server-pid", str(server.pid)),
            *("--output", str(output), *more),
        ]
    )
    record = records.read_json(output)
    assert record["error"] is None
    return status, record


def tally(record: Any) -> Tally:
    """What each instrument counted, by the project's own arithmetic on what was observed."""
    return al_record.rederive(record)[2].tally


def total(scrape: Any, name: str) -> float:
    return sum(s["value"] for s in scrape["samples"] if s["name"] == name)


def cut_off(row: Any) -> int:
    """Tokens that a request's last step verified beyond the end of its output."""
    return int(1 + row["spec"]["steps"] + row["spec"]["accepted"] - row["completion_tokens"])


def assert_instruments_agree(record: Any) -> None:
    """Counters against the requests' own figures, exactly.

    The counters know delivered tokens only, so they miss what was cut off at the end.
    """
    found, rows = tally(record), record["raw"]["requests"]
    assert found.by_counters and found.by_requests
    assert found.by_counters.steps == found.by_requests.steps
    assert all(0 <= cut_off(row) <= N for row in rows)
    missing = found.by_requests.accepted - found.by_counters.accepted
    assert missing == sum(map(cut_off, rows))
    # A stream chunk for the prefill's token and for each step, unless they made no text.
    assert all(row["chunks"] <= row["spec"]["steps"] + 1 for row in rows)


@pytest.fixture
def random_head(sglang: Embedded, tmp_path: Path) -> Iterator[Server]:
    head, script = tmp_path / "head", HERE / "make_random_eagle3.py"
    subprocess.run([sglang.python, script, sglang.model_path, head], check=True)
    with serve(sglang, tmp_path, sglang.model_path, speculative("EAGLE3", N, head)) as server:
        yield server


def test_random_eagle3_head_is_red_as_an_inactive_drafter(
    random_head: Server, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, record = measure(random_head, prompts, tmp_path / "al.json", 64)
    assert status == 1
    assert "drafter_inactive" in capsys.readouterr().out
    assert record["acceptance_length"] == 1.0
    assert (record["accepted_tokens"], record["verify_steps"]) == (0, PROMPTS * 63)
    assert_instruments_agree(record)
    # SGLang's own figure counts the token of the prefill, which no step made.
    assert [row["spec"]["reported"] for row in record["raw"]["requests"]] == [64 / 63] * PROMPTS


@pytest.fixture
def ngram(sglang: Embedded, tmp_path: Path) -> Iterator[Server]:
    # Exact enough that no near tie between two tokens is decided by the shape of a batch.
    arguments = [*speculative("NGRAM", N), "--dtype", "float32"]
    with serve(sglang, tmp_path, sglang.model_path, arguments) as server:
        yield server


def test_ngram_is_measured_and_remembers_what_it_served(
    ngram: Server, prompts: Path, tmp_path: Path
) -> None:
    """Its corpus outlives requests: the same prompts again are accepted more."""
    _, first = measure(ngram, prompts, tmp_path / "first.json", 48, "--no-gate")
    _, second = measure(ngram, prompts, tmp_path / "second.json", 48, "--no-gate")
    for record in (first, second):
        assert record["speculation"]["method"] == "ngram"
        assert_instruments_agree(record)
    assert 1.0 < first["acceptance_length"] < second["acceptance_length"] <= N + 1
    # And none of it changes an answer.
    said = [[row["text"] for row in record["raw"]["requests"]] for record in (first, second)]
    assert said[0] == said[1]


@pytest.fixture(scope="module")
def counting_models(sglang: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    models, script = tmp_path_factory.mktemp("counting") / "models", HERE / "make_counting.py"
    how = [str(STUMBLES_FROM), str(STRIDE)]
    subprocess.run([sglang.python, script, sglang.model_path, models, *how], check=True)
    return models


@pytest.fixture(scope="module")
def counting(sglang: Embedded, counting_models: Path) -> Iterator[Server]:
    arguments = speculative("STANDALONE", N, counting_models / "drafter")
    with serve(sglang, counting_models.parent, counting_models / "target", arguments) as server:
        yield server


def outcome(output_len: int) -> tuple[int, int]:
    """(accepted, steps) of one request to the counting model."""

    def right(offset: int) -> bool:
        return offset < STUMBLES_FROM or (offset - STUMBLES_FROM) % STRIDE != 0

    last = accepted = steps = 0
    while last + 1 < output_len:
        drafts = next((i for i in range(N) if not right(last + i)), N)
        last, accepted, steps = last + drafts + 1, accepted + drafts, steps + 1
    return accepted, steps


@pytest.mark.parametrize(("output_len", "al"), [(65, 4.0), (129, 1 + 87 / 42)])
def test_known_acceptance_is_measured_exactly(
    counting: Server, prompts: Path, tmp_path: Path, output_len: int, al: float
) -> None:
    """65 tokens are sixteen full steps of a drafter that is always right: N + 1."""
    _, record = measure(counting, prompts, tmp_path / "al.json", output_len, "--no-gate")
    accepted, steps = outcome(output_len)
    assert record["acceptance_length"] == 1 + accepted / steps == al
    assert record["accepted_tokens"] == PROMPTS * accepted
    assert record["verify_steps"] == PROMPTS * steps
    assert record["proposed_draft_tokens"] == PROMPTS * steps * N
    assert record["speculation"]["method"] == "draft_model"
    assert_instruments_agree(record)


@pytest.fixture
def counting_trees(sglang: Embedded, counting_models: Path, tmp_path: Path) -> Iterator[Server]:
    arguments = speculative("STANDALONE", N, counting_models / "drafter", topk=2, rows=TREE + 1)
    with serve(sglang, tmp_path, counting_models / "target", arguments) as server:
        yield server


def test_a_tree_is_as_deep_as_n_and_drafts_more(
    counting_trees: Server, prompts: Path, tmp_path: Path
) -> None:
    """Its best branch is the chain of a drafter that is always right."""
    _, record = measure(counting_trees, prompts, tmp_path / "al.json", 65, "--no-gate")
    assert (record["acceptance_length"], record["verify_steps"]) == (N + 1, PROMPTS * 16)
    assert record["proposed_draft_tokens"] == PROMPTS * 16 * TREE
    assert record["server"]["drafts_per_step"] == TREE
    assert [c["name"] for c in record["checks"] if c["ok"] is False] == []
    assert_instruments_agree(record)


def test_warm_up_and_earlier_requests_are_left_out(
    counting: Server, prompts: Path, tmp_path: Path
) -> None:
    _, first = measure(counting, prompts, tmp_path / "first.json", 65, "--no-gate")
    _, second = measure(counting, prompts, tmp_path / "second.json", 129, "--no-gate")
    # SGLang's own warm-up, the readiness check and ours came before the first window.
    assert total(first["raw"]["before"], adapter.REQUESTS) >= 3
    before, after = second["raw"]["before"], second["raw"]["after"]
    assert total(before, adapter.VERIFY_CALLS) > first["verify_steps"]
    for name, own in ((adapter.REQUESTS, PROMPTS), (adapter.GENERATED_TOKENS, PROMPTS * 129)):
        assert total(after, name) - total(before, name) == own
    lifetime = (total(after, adapter.GENERATED_TOKENS) - total(after, adapter.REQUESTS)) / total(
        after, adapter.VERIFY_CALLS
    )
    assert second["acceptance_length"] == 1 + 87 / 42 != pytest.approx(lifetime, rel=0.01)


def test_a_drafter_that_stumbles_changes_nothing_that_is_said(
    counting: Server, prompts: Path, tmp_path: Path
) -> None:
    """Greedy outputs, token by token: what the model says next has the next id, by far."""
    output = tmp_path / "greedy.json"
    greedy.main(
        [
            *("--base-url", counting.base_url, "--engine", "sglang", "--model", MODEL),
            *("--model-prefix", "smollm2", "--spec-method", "draft_model", "--num-prompts", "2"),
            *("--prompts-dir", str(prompts.parent), "--output", str(output)),
        ]
    )
    found = lossless.read(output)
    one, other = (row["tokens"] for row in found["outputs"])
    assert one == other and len(one) == greedy.OUTPUT_LEN
    assert all(margin > lossless.TIE_NATS for margin in found["outputs"][0]["margins"])
    assert (found["accepted"], found["steps"]) != (0, 0) and found["accepted"] < N * found["steps"]
