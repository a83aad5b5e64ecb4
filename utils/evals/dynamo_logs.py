#!/usr/bin/env python3
"""The acceptance length of a Dynamo run whose workers' metrics are out of reach, from their logs.

  python3 -m utils.evals.dynamo_logs mark start LOGS_DIR …    quiet time, then
  python3 -m utils.evals.speedbench_al measure --metrics none --no-gate --output-dir LOGS_DIR …
  python3 -m utils.evals.dynamo_logs mark end LOGS_DIR …      after as much quiet time
  python3 -m utils.evals.dynamo_logs LOGS_DIR OUT_DIR

The AL command's own record says what was sent and answered; the logs say what was accepted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from utils import errors, records
from utils.errors import HarnessError, NotMeasured, UsageError
from utils.evals import al_marks, al_record, worker_logs
from utils.golden import gate, registry
from utils.golden.registry import Registry
from utils.records import Json
from utils.verdicts import Verdict, exit_status

# What the AL command may have lacked, and the logs give.
SUPPLIED = {"no_instrument"}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    return mark_command(words[1:]) if words[:1] == ["mark"] else measure_command(words)


def mark_command(words: Sequence[str]) -> int:
    """Say when the workload runs; sleeps the quiet time on its side of the workload."""
    parser = argparse.ArgumentParser(prog="dynamo_logs mark", description=mark_command.__doc__)
    add = parser.add_argument
    add("kind", choices=[al_marks.START, al_marks.END])
    add("logs_dir", type=Path)
    run = parser.add_mutually_exclusive_group(required=True)
    run.add_argument("--run-id")
    run.add_argument("--plan", type=Path, help="plan.json, which has the run id")
    add("--thinking", required=True, choices=["on", "off"])
    add("--num-spec-tokens", required=True, type=int)
    add("--log-utc-offset", help="zone of log lines that name none, e.g. +00:00")
    add("--settle-s", type=float, default=al_marks.SETTLE_S, help="quiet time (default 20)")
    args = parser.parse_args(words)
    name = al_marks.file_name(args.thinking, args.num_spec_tokens)
    run_id = args.run_id or records.read_json(args.plan, "plan")["run_id"]
    al_marks.write(args.logs_dir / name, args.kind, run_id, args.log_utc_offset, args.settle_s)
    return errors.PASS


def measure_command(words: Sequence[str]) -> int:
    """Write one record for each of the AL command's, and print its verdict."""
    parser = argparse.ArgumentParser(
        prog="dynamo_logs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("logs_dir", type=Path)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--plan", type=Path, help="plan.json of the run, compared with the marks")
    parser.add_argument("--golden", type=Path, default=registry.FOLDER, help="golden curves")
    args = parser.parse_args(words)
    if args.logs_dir.resolve() == args.out_dir.resolve():
        raise UsageError("OUT_DIR is LOGS_DIR: the AL command's own record would be overwritten")
    goldens = registry.load(args.golden)
    plan = records.read_json(args.plan, "plan") if args.plan else None
    paths = sorted(args.logs_dir.glob("results_speedbench_al_*.json"))
    if not paths:
        raise NotMeasured(
            f"{args.logs_dir} has no record of the AL command, so nobody knows what was sent: run "
            "speedbench_al measure with --output-dir there",
            "no_client_record",
        )
    verdicts = []
    for path in paths:
        record = measured(path, args.logs_dir, plan)
        verdicts.append(_conclude(record, goldens, args.out_dir))
    return exit_status(verdicts)


def measured(path: Path, folder: Path, plan: Json | None) -> Json:
    """The AL command's record with what the logs say in place of counters, or why they don't.

    Raises:
        NotMeasured: the AL command's record itself can't be used.
    """
    record = al_record.read(path)
    if record[al_record.VERSION_KEY] != al_record.VERSION:
        raise NotMeasured(f"{path}: only version {al_record.VERSION} holds answers", "wrong_shape")
    supplied = SUPPLIED | {check["name"] for check in record["checks"]}
    if record["error"] and record["reason"] not in supplied:
        return record
    _forget(record)
    try:
        thinking, n = record["thinking_mode"], record["num_speculative_tokens"]
        marks = al_marks.read(folder / al_marks.file_name(thinking, n))
        busy = _busy(record, marks)
        _same_run(record, marks, plan)
        record["raw"]["log_windows"] = worker_logs.read(folder, marks, busy).as_json()
        _, _, derived = al_record.rederive(record)
        al_record.fill(record, derived)
    except HarnessError as error:
        reason = getattr(error, "reason", "unusable_configuration")
        record.update(error=str(error), reason=reason)
    return record


def _forget(record: Json) -> None:
    """What another instrument made of the workload."""
    names = ("acceptance_length", "accepted_tokens", "verify_steps", "proposed_draft_tokens")
    record.update(dict.fromkeys((*names, "quantity", "estimate", "error", "reason")))
    record.update(checks=[], metric_source="")
    record["raw"] = {**record["raw"], "before": None, "after": None}


def _busy(record: Json, marks: al_marks.Marks) -> worker_logs.Busy:
    """When requests were under way, by the AL command."""
    run = record["run"]
    if run["finished"] is None:
        raise NotMeasured("the AL command did not say when it ended", "no_end")
    started, finished = records.parse_time(run["started"]), records.parse_time(run["finished"])
    if not marks.started <= started <= finished <= marks.finished:
        raise NotMeasured(
            f"the AL command ran from {run['started']} to {run['finished']}, which is not between "
            f"the marks {records.format_time(marks.started)} and "
            f"{records.format_time(marks.finished)}",
            "contradictory_marks",
        )
    return worker_logs.Busy(started, finished)


def _same_run(record: Json, marks: al_marks.Marks, plan: Json | None) -> None:
    ids = {marks.run_id, record["run"]["run_id"]} - {None}
    if plan is not None:
        ids.add(plan.get("run_id"))
        if (n := plan.get("num_speculative_tokens")) != record["num_speculative_tokens"]:
            raise NotMeasured(
                f"N is {record['num_speculative_tokens']} by the AL command, {n} by the plan",
                "contradictory_draft_length",
            )
    if len(ids) != 1:
        raise NotMeasured(
            f"marks, record and plan are of runs {sorted(map(str, ids))}", "runs_mixed"
        )


def _conclude(record: Json, goldens: Registry, out_dir: Path) -> Verdict:
    verdict = gate.fill(record, goldens)
    name = al_record.file_name(record["thinking_mode"], record["num_speculative_tokens"])
    records.write_json(out_dir / name, record, "al_record_v2")
    print(verdict.line())
    print(f"record: {out_dir / name}")
    return verdict


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
