"""`measure --stop-early` against a server whose true acceptance length is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.measuring import OWN, measured, run
from tests.fakes.speculating import SpeculatingServer
from utils import records
from utils.acceptance import meter
from utils.errors import UsageError
from utils.evals import speedbench_al
from utils.golden import collection, gate, registry
from utils.verdicts import Outcome

pytestmark = pytest.mark.usefixtures("short_patience")
PROMPTS = 32
WHOLE = ("--num-prompts", str(PROMPTS), "--output-len", "200")


@pytest.fixture(scope="module")
def golden(prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one golden, of what the server does by itself, with rows."""
    folder = tmp_path_factory.mktemp("golden")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meter, "SETTLE_INTERVAL_S", 0.05)
        _, record = measured((), prompts, folder / "al.json", *WHOLE, "--no-gate", dialect=OWN)
    record["server"]["prefix_caching"] = False  # the fake doesn't say, and vLLM's default is on
    records.write_json(folder / "al.json", record)
    origin = collection.Origin("none", "the test")
    collection.assemble([folder / "al.json"], folder / "smollm2_eagle3.yaml", origin)
    tolerances = registry.FOLDER / registry.TOLERANCES
    (folder / registry.TOLERANCES).write_text(tolerances.read_text())
    return folder


def early(
    golden: Path, prompts: Path, output: Path, *more: str, **server: Any
) -> tuple[int, Any, SpeculatingServer]:
    with SpeculatingServer(**{"dialect": OWN, **server}).running() as running:
        options = ("--stop-early", "--golden", str(golden), *more)
        return (*run(running, prompts, output, *WHOLE, *options), running)


@pytest.mark.parametrize(
    ("accept", "status", "outcome"), [(0.6, 0, "pass"), (0.35, 1, "fail"), (0.8, 1, "fail")]
)
def test_stops_as_soon_as_it_is_certain(
    accept: float,
    status: int,
    outcome: str,
    golden: Path,
    prompts: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "al.json"
    found, record, server = early(golden, prompts, output, accept=accept)
    assert found == status
    assert record["error"] is None
    assert [look["outcome"] for look in record["early"]["looks"]] == [outcome]
    sent = record["workload"]["requests"]
    assert (sent, record["workload"]["prompts"]) == (8, PROMPTS)
    assert server.requests == 1 + 8  # a probe, then the first batch
    # The window is sound: it holds the batch, all of it and nothing else.
    assert (record["verify_steps"], record["accepted_tokens"]) == (server.steps, server.accepted)
    assert f"decided after 8 of {PROMPTS} prompts" in capsys.readouterr().out
    assert speedbench_al.main(["recheck", str(output), "--golden", str(golden)]) == status


def changed(golden: Path, folder: Path, change: Callable[[Any], None]) -> Path:
    """A copy of the golden folder in which `change` has had its way with the run."""
    for path in golden.glob("*.yaml"):
        (folder / path.name).write_text(path.read_text())
    data = yaml.safe_load((folder / "smollm2_eagle3.yaml").read_text())
    change(data["entries"][0]["runs"][0])
    (folder / "smollm2_eagle3.yaml").write_text(yaml.safe_dump(data))
    return folder


def test_undecided_goes_on(golden: Path, prompts: Path, tmp_path: Path) -> None:
    """Against a golden whose prompts lie 15 % above and below what the server does."""

    def spread(run: Any) -> None:
        run["rows"] = [[a + (-1) ** i * s // 3, s] for i, (a, s) in enumerate(run["rows"])]
        run["accepted"], run["per_position"] = sum(a for a, _ in run["rows"]), []

    output = tmp_path / "al.json"
    _, record, _ = early(changed(golden, tmp_path, spread), prompts, output)
    looks = record["early"]["looks"]
    assert [look["prompts"] for look in looks] == [8, 13, 18, 24]
    assert {look["outcome"] for look in looks} == {"go_on"}
    assert record["workload"]["requests"] == PROMPTS


class TestTheGateLooksAgain:
    """It never believes the path that a record states."""

    @pytest.fixture
    def stopped(self, golden: Path, prompts: Path, tmp_path: Path) -> Any:
        return early(golden, prompts, tmp_path / "al.json")[1]

    def test_the_path_is_not_believed(self, stopped: Any, golden: Path) -> None:
        stopped["early"]["looks"] = []
        verdict = gate.judge(stopped, registry.load(golden)).verdict
        assert verdict.outcome is Outcome.PASS

    def test_without_its_mark_it_was_cut_off(self, stopped: Any, golden: Path) -> None:
        del stopped["early"]
        verdict = gate.judge(stopped, registry.load(golden)).verdict
        assert (verdict.outcome, verdict.reason) == (Outcome.NOT_MEASURED, "all_requests_succeeded")

    def test_by_another_golden_it_decided_nothing(
        self, stopped: Any, golden: Path, tmp_path: Path
    ) -> None:
        rowless = changed(golden, tmp_path, lambda run: run.pop("rows"))
        verdict = gate.judge(stopped, registry.load(rowless)).verdict
        assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "stopped_undecided")
        assert "it stopped after 8 of 32 prompts" in verdict.detail

    def test_stream_chunks_decide_nothing(self, stopped: Any, golden: Path) -> None:
        for row in stopped["raw"]["requests"]:
            row["spec"] = None
        verdict = gate.judge(stopped, registry.load(golden)).verdict
        assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "stopped_undecided")
        assert "its requests have no exact figures of their own" in verdict.detail

    def test_a_batch_that_was_never_one(self, stopped: Any, golden: Path) -> None:
        """Nine concurrent requests: no look after eight prompts, whatever they say."""
        stopped["workload"]["concurrency"] = 9
        verdict = gate.judge(stopped, registry.load(golden)).verdict
        assert verdict.reason == "stopped_undecided"


def test_it_is_no_material_for_a_golden(golden: Path, prompts: Path, tmp_path: Path) -> None:
    output = tmp_path / "al.json"
    early(golden, prompts, output)
    with pytest.raises(UsageError, match="was free to stop early"):
        collection.assemble([output], tmp_path / "new.yaml", collection.Origin("a machine"))
    assert not (tmp_path / "new.yaml").exists()


def test_without_exact_rows_all_prompts_are_sent(
    golden: Path, prompts: Path, tmp_path: Path
) -> None:
    """Stream chunks miss what was cut off a request's last step."""
    status, record, _ = early(golden, prompts, tmp_path / "al.json", dialect="vllm-0.10")
    assert status == 0
    assert record["early"]["looks"] == []
    assert "no exact figures of each request" in record["early"]["undecidable"]
    assert record["workload"]["requests"] == PROMPTS


def test_without_a_golden_all_prompts_are_sent(golden: Path, prompts: Path, tmp_path: Path) -> None:
    status, record, _ = early(golden, prompts, tmp_path / "al.json", "--temperature", "0.5")
    assert status == 3
    assert "sampling.temperature" in record["early"]["undecidable"]
    assert record["workload"]["requests"] == PROMPTS


def test_rows_of_a_whole_run_are_paired_in_file_order(
    golden: Path, prompts: Path, tmp_path: Path
) -> None:
    """Not in the order of sending, else equal runs would look unlike."""
    never = pytest.MonkeyPatch.context
    with SpeculatingServer(dialect=OWN).running() as server, never() as patch:
        patch.setattr("utils.golden.early.path", lambda *_: [])
        patch.setattr("utils.evals.al_early.EarlyStop.enough", lambda *_: False)
        options = ("--stop-early", "--golden", str(golden))
        status, record = run(server, prompts, tmp_path / "al.json", *WHOLE, *options)
        verdict = gate.judge(record, registry.load(golden)).verdict
    assert status == 0
    assert "shift +0.0%" in verdict.source
    assert "paired over 32 prompts" in verdict.source
    # What the looks before it might err is not spent twice: a quarter of 1 % is left.
    assert "99.5% interval" in verdict.source


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--no-gate"], "leave out --no-gate"),
        (["--turns", "all"], "leave out --turns all"),
        (["--concurrency", "17"], "lower --concurrency"),
    ],
)
def test_unusable(options: list[str], words: str, golden: Path, prompts: Path) -> None:
    with SpeculatingServer(dialect=OWN).running() as server, pytest.raises(UsageError, match=words):
        early_options = ("--stop-early", "--golden", str(golden), *options)
        run(server, prompts, golden / "none.json", *WHOLE, *early_options)
    assert server.requests == 0
