#!/usr/bin/env python3
"""Measure the real acceptance length of a live server, or recompute a record offline."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[2])

import argparse
from collections.abc import Sequence
from typing import Any

from utils import arguments, errors, models, records
from utils.acceptance import client, engines, measure, recognise
from utils.acceptance.recognise import AUTO, Recognised
from utils.errors import HarnessError, NotMeasured, UsageError
from utils.evals import al_attempt, al_early, al_record
from utils.evals.prompt_files import PromptFile, prepared_path, read_prompts
from utils.golden import gate, registry
from utils.golden.registry import Registry
from utils.records import Json
from utils.verdicts import exit_status, one_line


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return measure_command(args) if args.command == "measure" else recheck_command(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="speedbench_al", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("measure", help="one AL measurement of a live server").add_argument
    url, base_url = arguments.url, arguments.base_url
    count, seconds = arguments.count, arguments.seconds
    add("--base-url", required=True, type=base_url, help="http://host:port, without /v1")
    add("--metrics-url", action="append", type=url, help="default: by engine; one a worker")
    add("--metrics", choices=["auto", "none"], default="auto", help="none: by streams alone")
    add("--engine", required=True, help="adapter in utils/acceptance/engines, e.g. vllm, or auto")
    add("--engines", type=count, help="data-parallel engines expected (default: by plan, else 1)")
    add("--model", required=True, help="served model name")
    add("--model-prefix", required=True, help="key in models.yaml and of goldens")
    add("--thinking", required=True, choices=["on", "off"])
    add("--num-spec-tokens", required=True, type=count, help="N, compared with the server's own")
    add("--spec-method", help="ngram, mtp, eagle3, draft_model … (default: by plan or server)")
    source = commands.choices["measure"].add_mutually_exclusive_group(required=True)
    source.add_argument("--prompts", type=Path, help="prepared JSONL")
    source.add_argument("--prompts-dir", type=Path, help="folder of the model's own prompt set")
    add("--num-prompts", type=count, help="first rows of the category (default: by models.yaml)")
    add("--category", help="default: by models.yaml, as the three below")
    add("--output-len", type=count, help="maximum new tokens")
    add("--temperature", type=arguments.temperature)
    add("--concurrency", type=count)
    add("--turns", choices=["first", "all"], default="first", help="of a conversation")
    add("--stall-s", type=seconds, default=600.0, help="longest silence of a stream")
    add("--request-deadline-s", type=seconds, default=1800.0)
    add("--total-deadline-s", type=seconds, default=4 * 3600.0)
    add("--plan", type=Path, help="plan.json of the run")
    add("--server-pid", type=count, help="process that runs the engine")
    add("--golden", type=Path, default=registry.FOLDER, help="folder of golden curves")
    add("--no-gate", action="store_true", help="measure and record; give no verdict")
    add("--stop-early", action="store_true", help="stop as soon as the verdict is certain")
    add("--output", type=Path, help="record (default: its standard name in --output-dir)")
    add("--output-dir", type=Path, default=Path())
    recheck = commands.add_parser("recheck", help="recompute a record from its raw part")
    recheck.add_argument("record", type=Path)
    recheck.add_argument("--golden", type=Path, default=registry.FOLDER)
    return parser


def measure_command(args: argparse.Namespace) -> int:
    """Measure, write the record whatever happens, print the verdict."""
    plan = _plan(args.plan)
    row = models.load(args.model_prefix)
    load = _load(args, row)
    prompt_file, category = _prompts(args, row)
    goldens = None if args.no_gate else registry.load(args.golden)
    if args.stop_early:
        prompt_file = al_early.in_order(prompt_file, args.turns, load.concurrency, goldens)
    engine, problem = _engine(args)
    record = al_attempt.begin(args, plan, load, prompt_file, category, engine)
    output = args.output or args.output_dir / al_record.file_name(
        args.thinking, args.num_spec_tokens
    )
    _begin(output, record)
    try:
        if problem:
            raise problem
        with errors.ending_on_term():
            _measure(args, plan, load, prompt_file, record, engine.engine, goldens)
    except HarnessError as error:
        reason = getattr(error, "reason", "unusable_configuration")
        record.update(error=str(error), reason=reason)
    except (KeyboardInterrupt, SystemExit):
        record.update(error="interrupted", reason="interrupted")
        raise
    finally:
        record["run"]["finished"] = records.utc_now()
        status = _conclude(args, record, output, goldens)
    return status


def _plan(path: Path | None) -> Json:
    if path is None:
        return {}
    try:
        return dict(records.read_json(path, "plan"))
    except NotMeasured as error:
        raise UsageError(f"--plan {error}") from error


def _begin(output: Path, record: Json) -> None:
    """Write the record of an attempt that has no end yet: whatever ends it leaves that at least.

    Raises:
        UsageError: the record couldn't be written afterwards either.
    """
    record.update(error="it never ended: it was killed, or it crashed", reason="unfinished")
    try:
        records.write_json(output, record, "al_record_v2")
    except HarnessError as error:
        raise UsageError(f"--output {error}") from error


def _engine(args: argparse.Namespace) -> tuple[Recognised, NotMeasured | None]:
    """The adapter; a server that can't be recognised gets a record of that too."""
    if args.engine != AUTO:
        return Recognised(engines.load(args.engine), "--engine"), None
    try:
        found = recognise.recognise(args.base_url, args.metrics_url or ())
    except NotMeasured as error:
        return Recognised(engines.load("openai"), "nothing"), error
    print(f"engine: {found.engine.name}, because {found.by}")
    return found, None


def _load(args: argparse.Namespace, row: models.Model) -> client.Load:
    mode, prompt_set = row.mode(args.thinking), row.prompt_set
    sampling = dict(mode.sampling)
    if args.temperature is not None:
        sampling["temperature"] = args.temperature
    return client.Load(
        base_url=args.base_url,
        model=args.model,
        sampling=sampling,
        chat_template_kwargs=mode.chat_template_kwargs,
        output_len=args.output_len or prompt_set.output_len,
        concurrency=args.concurrency or prompt_set.concurrency,
        request_deadline_s=args.request_deadline_s,
        total_deadline_s=args.total_deadline_s,
        stall_s=args.stall_s,
        endpoint=row.endpoint,
    )


def _prompts(args: argparse.Namespace, row: models.Model) -> tuple[PromptFile, str]:
    category = args.category or row.prompt_set.category
    path, limit = args.prompts, args.num_prompts
    if path is None:
        path = prepared_path(args.prompts_dir, row.prompt_set)
        limit = limit or row.prompt_set.prompts
    return read_prompts(path, category, limit, turns=args.turns), category


def _measure(
    args: argparse.Namespace,
    plan: Json,
    load: client.Load,
    prompts: PromptFile,
    record: Json,
    engine: engines.Engine,
    goldens: Registry | None,
) -> None:
    """Observe and derive into the record; what was seen is kept when it fails half-way."""
    target = measure.Target(
        base_url=load.base_url,
        metrics_urls=("none",) if args.metrics == "none" else tuple(args.metrics_url or ()),
        engine=engine,
        model=args.model,
        ranks=args.engines or plan.get("topology", {}).get("engines", 1),
        server_pid=args.server_pid,
    )
    seen = measure.Observation()
    stop = None
    if args.stop_early and goldens:
        stop = al_early.EarlyStop(goldens, engine, record, seen)
    asked, sequence = al_record.asked_of(record), stop.batches() if stop else None
    try:
        measure.observe(target, asked, load, prompts.prompts, seen, sequence)
    finally:
        al_attempt.keep(seen, record)
        if stop:
            stop.keep()
    _, _, derived = al_record.rederive(record)
    record.update(error=None, reason=None)
    al_record.fill(record, derived)


def _conclude(
    args: argparse.Namespace, record: Json, output: Path, goldens: Registry | None
) -> int:
    status = errors.NOT_MEASURED
    verdict = None
    if goldens:
        verdict = gate.fill(record, goldens)
        status = exit_status([verdict])
    records.write_json(output, record, "al_record_v2")
    print(verdict.line() if verdict else _ungated(record))
    print(f"record: {output}")
    if args.no_gate and record["error"] is None:
        status = errors.PASS
    return status


def _ungated(record: Json) -> str:
    if record["error"]:
        return one_line(f"NOT_MEASURED {record['reason']}: {record['error']}")
    found: dict[str, Any] = record["estimate"]
    return f"MEASURED     AL {found['acceptance_length']:.4f}, not gated (--no-gate)"


def recheck_command(args: argparse.Namespace) -> int:
    """Recompute figures and verdict of a stored record; say where it contradicts itself."""
    record = al_record.read(args.record)
    if record[al_record.VERSION_KEY] == al_record.VERSION and al_record.has_window(record):
        _, _, derived = al_record.rederive(record)
        for check in derived.checks:
            mark = {True: "ok", False: "BROKEN" if check.fatal else "warn", None: "n/a"}[check.ok]
            print(one_line(f"{mark:<6} {check}"))
        if changed := al_record.differences(record, derived):
            raise NotMeasured(
                f"{args.record}: {', '.join(changed)} differ from what its raw part comes to"
            )
    verdict = gate.judge(record, registry.load(args.golden)).verdict
    print(verdict.line())
    return exit_status([verdict])


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
