from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests import run_files
from tests.al_records import SHA, merged, version_2
from utils import errors, records
from utils.acceptance import log_lines
from utils.errors import NotMeasured, UsageError
from utils.evals import al_marks, al_record, dynamo_logs, speedbench_al
from utils.golden import gate, registry
from utils.records import Json

GOLDEN = Path(__file__).parents[1] / "result_dirs" / "golden"
PREFIX, NAME = "(Worker pid=77) INFO", "results_speedbench_al_on_mtp2.json"
# The client in the record works from second 0 to 300, the marks are 20 s further out.
BEGIN = datetime(2026, 12, 1, 10, tzinfo=timezone.utc)
AL = 2.27


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


def vllm_line(
    second: float, accepted: int, drafts: int, n: int = 2, elapsed: float = 10.0, **changes: Any
) -> str:
    """As vllm/v1/spec_decode/metrics.py prints it."""
    drafted = n * drafts
    mean = changes.get("mean", 1 + accepted / drafts)
    stamp = changes.get("stamp", f"{PREFIX} {at(second):%m-%d %H:%M:%S} [metrics.py:120]")
    rates = ", ".join(["0.500"] * changes.get("rates", n))
    return (
        f"{stamp} SpecDecoding metrics: Mean acceptance length: {mean:.2f}, "
        f"Accepted throughput: {accepted / elapsed:.2f} tokens/s, "
        f"Drafted throughput: {drafted / elapsed:.2f} tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {rates}, "
        f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%"
    )


# 1270 accepted in 1000 drafts, as the record's answers have; no unweighted mean gives it.
WORKLOAD = [vllm_line(9, 150, 100), vllm_line(19, 1000, 700), vllm_line(299, 120, 200)]
GSM8K = [vllm_line(second, 1890, 1000) for second in (-100, -90, -80, 400, 410)]


@dataclass
class Run:
    """A folder of logs as a run leaves it."""

    logs: Path
    out: Path

    def log(self, lines: Sequence[str], name: str = "node1_decode_w0.out") -> None:
        (self.logs / name).write_text("\n".join(["engine starts", *lines, "bye"]) + "\n")

    def marks(self, *kinds: str, offset: str | None = "+00:00", settle: float = 20) -> None:
        times = {"start": at(-settle), "end": at(300 + settle)}
        said = {"run_id": "r1", "log_utc_offset": offset}
        rows = [
            {"mark": kind, "time": f"{times[kind]:%Y-%m-%dT%H:%M:%SZ}", **said} for kind in kinds
        ]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (self.logs / al_marks.file_name("on", 2)).write_text(text)

    def client(self, **changes: Any) -> None:
        """The AL command's record: no metrics and no figures of the requests' own."""
        record = version_2()
        record["raw"].update(before=None, after=None)
        for row in record["raw"]["requests"]:
            row["spec"] = None
        record.update(
            error="no metrics", reason="no_instrument", framework="dynamo-vllm", checks=[]
        )
        records.write_json(self.logs / NAME, merged(record, changes), "al_record_v2")

    def go(self, *more: str) -> int:
        words = [str(self.logs), str(self.out), "--golden", str(GOLDEN), *more]
        return errors.run(lambda: dynamo_logs.main(words))

    def record(self) -> Json:
        return al_record.read(self.out / NAME)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    found = Run(tmp_path / "logs", tmp_path / "out")
    found.logs.mkdir()
    found.marks("start", "end")
    found.client()
    return found


def reason(run: Run) -> str:
    """Of a record that has no AL, and no zero either."""
    assert run.go() == errors.NOT_MEASURED
    record = run.record()
    assert record["acceptance_length"] is None
    assert gate.judge(record, registry.load(GOLDEN)).verdict.reason == record["reason"]
    return str(record["reason"])


def test_known_truth_without_other_evals(run: Run) -> None:
    run.log([*GSM8K[:3], *WORKLOAD, *GSM8K[3:]])
    assert run.go() == errors.PASS
    record = run.record()
    assert (record["acceptance_length"], record["verify_steps"]) == (AL, 1000)
    assert (record["accepted_tokens"], record["proposed_draft_tokens"]) == (1270, 2000)
    assert record["metric_source"] == "decode worker logs"
    assert record["workload"]["prompts_sha256"] == SHA
    assert record["estimate"]["standard_error"] is None
    found = al_record.figures(record)
    assert (found.acceptance_length, found.standard_error, found.rows) == (AL, None, ())


def test_recheck_recomputes_from_the_windows(run: Run) -> None:
    run.log(WORKLOAD)
    run.go()
    path = run.out / NAME
    recheck = ["recheck", str(path), "--golden", str(GOLDEN)]
    assert speedbench_al.main(recheck) == errors.PASS
    record = run.record()
    record["raw"]["log_windows"]["windows"].pop(0)
    records.write_json(path, record)
    with pytest.raises(NotMeasured, match="differ from what its raw part comes to"):
        speedbench_al.main(recheck)
    assert gate.judge(record, registry.load(GOLDEN)).verdict.reason == "logs_cover_the_answers"


def test_a_window_moved_out_of_the_marks_is_refused(run: Run) -> None:
    run.log(WORKLOAD)
    run.go()
    record = run.record()
    record["raw"]["log_windows"]["windows"][0]["started"] = "2026-12-01T09:00:00Z"
    assert gate.judge(record, registry.load(GOLDEN)).verdict.reason == "straddling_window"


def test_windows_beside_scrapes_are_ambiguous(run: Run) -> None:
    run.log(WORKLOAD)
    run.go()
    record = run.record()
    scrapes = version_2()["raw"]
    record["raw"].update(before=scrapes["before"], after=scrapes["after"])
    assert gate.judge(record, registry.load(GOLDEN)).verdict.reason == "no_window"


def test_value_off_its_golden_fails(run: Run) -> None:
    run.log([vllm_line(19, 1270, 1270 - 20), vllm_line(29, 0, 20)])
    run.client(raw={"requests": _answers(1270, 1270)})
    assert run.go() == errors.FAIL
    assert run.record()["acceptance_length"] == 2.0
    assert run.record()["passed"] is False


def _answers(accepted: int, steps: int) -> list[Json]:
    rows: list[Json] = version_2((accepted - 570, 570), steps)["raw"]["requests"]
    return [{**row, "spec": None} for row in rows]


def test_all_logs_of_all_workers_count(run: Run) -> None:
    run.log(WORKLOAD[:1])  # restarted: the second file has the same index
    run.log(WORKLOAD[1:2], "node2_decode_w0.out")
    run.log(WORKLOAD[2:], "node1_agg_w1.out")
    run.log(GSM8K, "node1_prefill_w0.out")
    assert run.go() == errors.PASS
    assert run.record()["acceptance_length"] == AL
    workers = [w["worker"] for w in run.record()["raw"]["log_windows"]["windows"]]
    assert workers == ["agg_w1", "decode_w0", "decode_w0"]


@pytest.mark.parametrize(
    "stamp",
    [
        "{0:%Y-%m-%dT%H:%M:%S}.123456789Z  INFO metrics.log:",
        "\x1b[2m{0:%Y-%m-%dT%H:%M:%S}.123456Z\x1b[0m \x1b[32m INFO\x1b[0m metrics.log:",
        "[{0:%Y-%m-%d %H:%M:%S}]",
        "{0:%Y-%m-%d %H:%M:%S},123 INFO vllm Worker 7",
        "INFO {0:%m-%d %H:%M:%S} [metrics.py:120]",
    ],
)
def test_stamps(run: Run, stamp: str) -> None:
    rows = [(-100, 1890, 1000), (9, 150, 100), (19, 1000, 700), (299, 120, 200)]
    run.log([vllm_line(s, a, d, stamp=stamp.format(at(s))) for s, a, d in rows])
    assert run.go() == errors.PASS
    assert run.record()["acceptance_length"] == AL


def test_year_of_a_stamp_without_one() -> None:
    line = vllm_line(0, 3, 3, stamp="INFO 12-31 23:59:58")
    near = datetime(2027, 1, 1, tzinfo=timezone.utc).timestamp()
    found = log_lines.parse("x", line, near, timezone.utc).lines[0]
    assert found.earliest == near - 2
    leap = vllm_line(0, 3, 3, stamp="INFO 02-29 00:00:00")
    near = datetime(2028, 3, 1, tzinfo=timezone.utc).timestamp()
    assert log_lines.parse("x", leap, near, timezone.utc).lines[0].earliest == near - 86400


def test_offset_of_the_workers(run: Run) -> None:
    run.marks("start", "end", offset="-08:00")
    run.log([vllm_line(s - 8 * 3600, a, d) for s, a, d in [(9, 150, 100), (19, 1120, 900)]])
    assert run.go() == errors.PASS
    run.marks("start", "end", offset=None)
    assert reason(run) == "unknown_time_zone"


@pytest.mark.parametrize("second", [5, 305])
def test_straddling_window(run: Run, second: int) -> None:
    """Marks without quiet time: the line at the border may hold another eval's traffic."""
    run.marks("start", "end", settle=0)
    run.log([*WORKLOAD[1:2], vllm_line(second, 1890, 1000)])
    assert reason(run) == "straddling_window"
    assert "put the marks further from the workload" in run.record()["error"]


def test_line_after_idle_time_covers_one_interval_only(run: Run) -> None:
    run.log([*GSM8K[:3], vllm_line(9, 150, 100, elapsed=89), *WORKLOAD[1:]])
    assert run.go() == errors.PASS


@pytest.mark.parametrize(
    ("kinds", "name"),
    [
        (["end"], "no_start_mark"),
        (["start"], "no_end_mark"),
        (["end", "start"], "contradictory_marks"),
        (["start", "start", "end"], "contradictory_marks"),
        ([], "no_start_mark"),
    ],
)
def test_marks_that_are_none(run: Run, kinds: list[str], name: str) -> None:
    run.marks(*kinds)
    run.log(WORKLOAD)
    assert reason(run) == name


@pytest.mark.parametrize("text", ["{", "[]", '{"mark": "start"}', '{"time": NaN}'])
def test_marks_that_cannot_be_read(run: Run, text: str) -> None:
    (run.logs / al_marks.file_name("on", 2)).write_text(text)
    run.log(WORKLOAD)
    assert reason(run) == "unreadable_marks"


def test_workload_outside_the_marks(run: Run) -> None:
    run.client(run={"finished": "2026-12-01T11:00:00Z"})
    run.log(WORKLOAD)
    assert reason(run) == "contradictory_marks"


def test_marks_file_is_missing(run: Run) -> None:
    (run.logs / al_marks.file_name("on", 2)).unlink()
    run.log(WORKLOAD)
    assert reason(run) == "no_start_mark"


def test_logs_that_say_nothing(run: Run) -> None:
    assert reason(run) == "no_logs"
    run.log([])
    assert reason(run) == "no_lines"
    run.log(GSM8K)
    assert reason(run) == "no_lines"
    run.log(WORKLOAD)
    run.log(GSM8K, "node1_decode_w1.out")
    assert reason(run) == "worker_without_lines"


def test_missing_lines_of_a_worker_are_noticed(run: Run) -> None:
    run.log(WORKLOAD[:2])
    assert _broken(run) == "logs_cover_the_answers"


def test_foreign_traffic_between_the_marks_is_noticed(run: Run) -> None:
    run.log([*WORKLOAD, vllm_line(100, 1890, 1000)])
    assert _broken(run) == "tokens_add_up"


def _broken(run: Run) -> str:
    assert run.go() == errors.NOT_MEASURED
    return str(run.record()["reason"])


@pytest.mark.parametrize(
    "line",
    [
        vllm_line(9, 150, 100, n=3),
        vllm_line(9, 150, 100, rates=4),
        vllm_line(9, 150, 100, mean=2.40),
        vllm_line(9, 150, 100).replace("Drafted: 200", "Drafted: 201"),
        vllm_line(9, 150, 100).replace("Drafted: 200", "Drafted: 0"),
    ],
)
def test_contradictory_draft_length(run: Run, line: str) -> None:
    run.log([line, *WORKLOAD[1:]])
    assert reason(run) == "contradictory_draft_length"


def test_plan_of_another_n_or_run(run: Run, tmp_path: Path) -> None:
    run.log(WORKLOAD)
    plan = tmp_path / "plan.json"
    for n, run_id, name in [
        (2, "r1", None),
        (3, "r1", "contradictory_draft_length"),
        (2, "r2", "runs_mixed"),
    ]:
        records.write_json(plan, run_files.plan(num_speculative_tokens=n, run_id=run_id))
        assert run.go("--plan", str(plan)) == (errors.NOT_MEASURED if name else errors.PASS)
        assert run.record()["reason"] == name


def test_method_that_may_draft_less(run: Run) -> None:
    run.client(speculation={"method": "ngram"})
    run.log(WORKLOAD)
    assert reason(run) == "steps_unknown"


def test_sglang_tells_no_steps(run: Run) -> None:
    run.log(
        [
            f"[{at(9):%Y-%m-%d %H:%M:%S} TP0] Decode batch, #running-req: 1, #token: 200, "
            "token usage: 0.00, accept len: 2.27, accept rate: 0.64, cuda graph: True, "
            "gen throughput (token/s): 90.00, #queue-req: 0"
        ]
    )
    assert reason(run) == "steps_unknown"


def test_torn_line_and_line_without_time(run: Run) -> None:
    run.log([WORKLOAD[0][:120], *WORKLOAD[1:]])
    assert reason(run) == "unreadable_line"
    run.log([vllm_line(9, 150, 100, stamp="INFO"), *WORKLOAD[1:]])
    assert reason(run) == "line_without_time"


def test_same_log_twice(run: Run) -> None:
    run.log(WORKLOAD)
    run.log(WORKLOAD, "copy_decode_w0.out")
    assert reason(run) == "duplicate_log"


def test_failure_of_the_al_command_stays(run: Run) -> None:
    run.client(error="interrupted", reason="interrupted")
    run.log(WORKLOAD)
    assert _broken(run) == "interrupted"


def test_without_a_client_record(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (run.logs / NAME).unlink()
    assert run.go() == errors.NOT_MEASURED
    assert "no record of the AL command" in capsys.readouterr().err
    assert not run.out.exists()


def test_output_beside_the_logs_is_refused(run: Run) -> None:
    run.out = run.logs
    assert run.go() == errors.USAGE


def test_mark_command(tmp_path: Path) -> None:
    words = [str(tmp_path), "--run-id", "r1", "--thinking", "on", "--num-spec-tokens", "2"]
    words += ["--log-utc-offset", "+02:00", "--settle-s", "0"]
    for kind in ("start", "end"):
        assert dynamo_logs.main(["mark", kind, *words]) == errors.PASS
    marks = al_marks.read(tmp_path / al_marks.file_name("on", 2))
    assert marks.run_id == "r1"
    assert marks.started < marks.finished
    assert marks.zone == timezone(timedelta(hours=2))
    with pytest.raises(UsageError, match="start a new file"):
        dynamo_logs.main(["mark", "end", *words])
    with pytest.raises(UsageError, match=r"write it as \+00:00"):
        al_marks.zone_of("UTC")


def test_script(run: Run) -> None:
    run.log([*GSM8K, *WORKLOAD])
    script = Path(dynamo_logs.__file__).with_name("write_dynamo_speedbench_al_from_logs.sh")
    done = subprocess.run(
        [script, run.logs, run.out, "--golden", GOLDEN],
        cwd=run.logs,
        env={"HARNESS_PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (errors.PASS, "")
    assert done.stdout.startswith("PASS")
    assert run.record()["passed"] is True
