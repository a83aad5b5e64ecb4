"""The measure and recheck commands against a server whose true acceptance length is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.measuring import OWN, measured, run
from tests.fakes.speculating import SpeculatingServer
from utils.errors import NotMeasured
from utils.evals import al_record, speedbench_al

pytestmark = pytest.mark.usefixtures("short_patience")


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("faults", [(), ("no_ids",), ("scrape_503_once",)])
def test_the_window_alone_is_measured(
    faults: tuple[str, ...], ranks: int, prompts: Path, tmp_path: Path
) -> None:
    with SpeculatingServer(faults=faults, ranks=ranks).running() as server:
        status, record = run(
            server, prompts, tmp_path / "al.json", "--no-gate", "--engines", str(ranks)
        )
    assert status == 0
    assert (record["verify_steps"], record["accepted_tokens"]) == (server.steps, server.accepted)
    assert record["acceptance_length"] == 1 + server.accepted / server.steps
    assert record["estimate"]["standard_error"] > 0


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (("model",), "serves other, not"),
        (("json_metrics",), "instead of Prometheus text"),
        (("scrape_503",), "status 503"),
        (("spec_off",), "does this server speculate"),
        (("nan",), "isn't finite"),
        (("busy",), "did not come to rest"),
        (("drift",), "counters still move"),
        (("generation_500",), "EngineDeadError"),
        (("restart",), "a restart"),
        (("reset",), "the server restarted"),
        (("foreign",), "server_requests_equal_ours"),
        (("per_pos",), "accepted_equals_per_position_sum"),
        (("fail_20",), "10 of 12 succeeded"),
        (("undecodable",), "undecodable chunk"),
        (("no_usage",), "no usage"),
        (("no_done",), r"without \[DONE\]"),
        (("empty",), "proposed nothing"),
        (("thinks",), "thinking_seen"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_every_fault_has_a_name_and_no_verdict(
    faults: tuple[str, ...], words: str, prompts: Path, tmp_path: Path
) -> None:
    status, record = measured(faults, prompts, tmp_path / "al.json")
    assert status == 3
    assert re.search(words, record["error"]), record["error"]
    assert record["passed"] is False
    assert record["reason"]


def test_a_vanished_rank_is_invalid(prompts: Path, tmp_path: Path) -> None:
    status, record = measured(
        ("rank_vanishes",), prompts, tmp_path / "al.json", "--engines", "2", ranks=2
    )
    assert status == 3
    assert "disappeared" in record["error"]


def test_a_missing_rank_is_refused_at_once(prompts: Path, tmp_path: Path) -> None:
    status, record = measured((), prompts, tmp_path / "al.json", "--engines", "2")
    assert status == 3
    assert "1 engines show metrics, 2 are expected" in record["error"]
    assert record["raw"]["requests"] == []


def test_a_silent_request_ends_at_its_deadline(prompts: Path, tmp_path: Path) -> None:
    status, record = measured(
        ("mute",), prompts, tmp_path / "al.json", "--request-deadline-s", "0.5"
    )
    assert status == 3
    assert "no end within 0.5 s" in record["error"]


def test_the_whole_load_ends_at_its_deadline(prompts: Path, tmp_path: Path) -> None:
    status, record = measured(("mute",), prompts, tmp_path / "al.json", "--total-deadline-s", "1")
    assert status == 3
    assert "for the whole load" in record["error"]


def test_a_refusal_before_any_answer_is_tried_again_and_counted_once(
    prompts: Path, tmp_path: Path
) -> None:
    status, record = measured(("not_yet",), prompts, tmp_path / "al.json", "--no-gate")
    assert status == 0
    assert [row["tries"] for row in record["raw"]["requests"]].count(2) == 1


def test_merged_chunks_leave_the_stream_out_of_it(prompts: Path, tmp_path: Path) -> None:
    status, record = measured(("merged",), prompts, tmp_path / "al.json", "--no-gate")
    assert status == 0
    (check,) = [c for c in record["checks"] if c["name"] == "stream_agrees"]
    assert check["ok"] is None
    assert "chunks were merged" in check["expected"]


def test_nothing_accepted_is_red_as_an_inactive_drafter(prompts: Path, tmp_path: Path) -> None:
    status, record = measured((), prompts, tmp_path / "al.json", accept=0.0)
    assert status == 1
    assert record["acceptance_length"] == 1.0


def test_an_al_that_the_environment_would_force_is_no_measurement(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "1.002")
    status, record = measured((), prompts, tmp_path / "al.json", accept=0.0)
    assert (status, record["reason"]) == (3, "not_a_forced_value")
    status, record = measured((), prompts, tmp_path / "al.json", "--no-gate", accept=0.5)
    assert status == 0


def test_all_turns_are_a_mode_of_its_own(prompts: Path, tmp_path: Path) -> None:
    rows = [
        {"question_id": f"q{i}", "category": "chat", "turns": [f"first {i}", "and then?"]}
        for i in range(3)
    ]
    talks = tmp_path / "talks.jsonl"
    talks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = ("--no-gate", "--prompts", str(talks), "--num-prompts", "3", "--category", "chat")
    payloads = set()
    for turns, requests in (("first", 3), ("all", 6)):
        _, record = measured((), prompts, tmp_path / "al.json", *more, "--turns", turns)
        assert record["error"] is None
        workload = record["workload"]
        assert (workload["turns"], workload["requests"]) == (turns, requests)
        assert len(record["raw"]["requests"]) == requests
        payloads |= {workload["payload_sha256"], workload["prompts_sha256"]}
    assert len(payloads) == 4


def test_how_the_client_kept_up_is_in_the_record(prompts: Path, tmp_path: Path) -> None:
    _, record = measured(("slow",), prompts, tmp_path / "al.json", "--no-gate")
    assert record["raw"]["client"]["reached_concurrency"] == 4
    assert "client_keeps_up" in [check["name"] for check in record["checks"]]


def test_every_sampling_field_is_sent(prompts: Path, tmp_path: Path) -> None:
    with SpeculatingServer().running() as server:
        run(server, prompts, tmp_path / "al.json", "--no-gate", "--temperature", "0.5")
    for body in server.bodies:
        assert (body["temperature"], body["top_p"]) == (0.5, 1.0)


def test_dead_server_leaves_a_record(prompts: Path, tmp_path: Path) -> None:
    server = SpeculatingServer()
    server.base_url = "http://127.0.0.1:9"
    status, record = run(server, prompts, tmp_path / "al.json")
    assert status == 3
    assert "did not answer" in record["error"]


def test_a_gone_engine_is_named(prompts: Path, tmp_path: Path) -> None:
    status, record = measured((), prompts, tmp_path / "al.json", "--server-pid", "999999999")
    assert status == 3
    assert "is gone" in record["error"]


def test_recheck_finds_an_edited_figure(
    prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "al.json"
    _, record = measured((), prompts, output, "--no-gate", dialect=OWN)
    assert speedbench_al.main(["recheck", str(output)]) == 3  # no golden, and nothing else
    assert "no_golden" in capsys.readouterr().out
    record["acceptance_length"] += 0.1
    output.write_text(json.dumps(record))
    with pytest.raises(NotMeasured, match="acceptance_length"):
        speedbench_al.main(["recheck", str(output)])
    with pytest.raises(NotMeasured, match="is written as"):
        al_record.figures(record)


def test_an_edited_counter_is_caught_by_the_requests_own_figures(
    prompts: Path, tmp_path: Path
) -> None:
    _, record = measured((), prompts, tmp_path / "al.json", "--no-gate", dialect=OWN)
    for sample in record["raw"]["after"]["samples"]:
        if sample["name"].endswith("accepted_tokens_total"):
            sample["value"] += 1
        if sample["name"].endswith("per_pos_total") and sample["labels"]["position"] == "0":
            sample["value"] += 1
    _, _, derived = al_record.rederive(record)
    assert "requests_own_figures_equal_counters" in [check.name for check in derived.broken]
