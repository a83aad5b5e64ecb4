#!/usr/bin/env python3
"""The serving benchmark: real text of the asked length, closed loop, one record per concurrency.

The server is warmed up with prompts of their own before the window; what it accepts, and what its
GPUs draw, is measured in the window. A request that fails turns the result red, with its count.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[2])

import argparse
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from utils import errors, models, records
from utils.acceptance import client, engines
from utils.acceptance.client import Answer, Load, Pace, Prompt
from utils.acceptance.preflight import Target
from utils.errors import NotMeasured, UsageError
from utils.evals.prompt_files import prepared_path, read_prompts
from utils.records import Json
from utils.serving import accepted, aiperf_run, figures, gpu_monitor, sized_prompts, slo
from utils.serving.greedy import NONE
from utils.verdicts import exit_status

TASK = "serving"
CLIENTS = ("specgate", "aiperf")
PROMPTS_PER_SLOT = 10
UNTOLD = dict.fromkeys(("reached_concurrency", "loop_lag_s", "cpu_share"))  # by AIPerf


@dataclass(frozen=True)
class Bench:
    """What all points of a sweep share. method: how the server speculates, or none."""

    args: argparse.Namespace
    plan: Json
    target: Target
    load: Load
    slo: dict[str, float]
    dataset: str
    method: str


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    model = models.load(args.model_prefix)
    plan = records.read_json(args.plan, "plan") if args.plan else {}
    path = prepared_path(args.prompts_dir, model.prompt_set)
    corpus = read_prompts(path, model.prompt_set.category)
    mode = model.mode(args.thinking)
    base_url = args.base_url.rstrip("/")
    load = Load(
        base_url=base_url,
        model=args.model,
        sampling=mode.sampling,
        chat_template_kwargs=mode.chat_template_kwargs,
        output_len=args.osl,
        concurrency=max(args.concurrency),
    )
    ranks = plan.get("topology", {}).get("engines", 1)
    engine = engines.load(args.engine)
    bench = Bench(
        args=args,
        plan=plan,
        target=Target(base_url, (), engine, args.model, ranks, args.server_pid),
        load=load,
        slo=slo.parse(args.slo),
        dataset=corpus.dataset,
        method=plan.get("spec_decoding") or NONE,
    )
    most = max(args.concurrency)
    prompts = sized_prompts.build(
        [prompt.messages[0]["content"] for prompt in corpus.prompts],
        args.isl,
        most * args.prompts_per_slot + most,
        sized_prompts.counter(base_url, args.model, mode.chat_template_kwargs),
    )
    # Every point, whatever became of the one before it.
    return max([_tried(bench, concurrency, prompts) for concurrency in args.concurrency])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    add = parser.add_argument
    add("--base-url", required=True, help="http://host:port, without /v1")
    add("--engine", default="vllm")
    add("--model", required=True, help="served model name")
    add("--model-prefix", required=True, help="key in models.yaml")
    add("--thinking", choices=["on", "off"], default="off")
    add("--isl", type=int, required=True, help="input tokens of a request")
    add("--osl", type=int, required=True, help="maximum output tokens of a request")
    add(
        "--concurrency", type=int, required=True, nargs="+", help="points of a sweep, each a record"
    )
    add("--prompts-per-slot", type=int, default=PROMPTS_PER_SLOT, help="requests by concurrency")
    add("--prompts-dir", type=Path, default=models.prompts_dir())
    add("--client", choices=CLIENTS, default=CLIENTS[0])
    add("--slo", default="", help='a good request: "ttft_s=0.5 tpot_s=0.05 e2e_s=20"')
    add("--tokenizer", help="folder, for aiperf (default: the plan's model_path)")
    add("--plan", type=Path, help="plan.json of the run")
    add("--server-pid", type=int, help="process that runs the engine")
    add("--output", type=Path, required=True, help="one point's record; of several, with _conc<N>")
    return parser


def _tried(bench: Bench, concurrency: int, prompts: Sequence[Prompt]) -> int:
    try:
        return _point(bench, concurrency, prompts)
    except NotMeasured as error:
        print(f"serving conc={concurrency}: no result: {error}", file=sys.stderr, flush=True)
        return errors.NOT_MEASURED


def _point(bench: Bench, concurrency: int, prompts: Sequence[Prompt]) -> int:
    """One concurrency: warm up, measure, write the record; its exit status."""
    args, load = bench.args, replace(bench.load, concurrency=concurrency)
    number = concurrency * args.prompts_per_slot
    output = args.output
    if len(args.concurrency) > 1:
        output = output.with_name(f"{output.stem}_conc{concurrency}.json")
    started, pace = records.utc_now(), Pace(concurrency)
    client.run(load, prompts[number : number + concurrency], bench.target.engine)
    monitor = gpu_monitor.Monitor(args.server_pid, load.base_url)
    with monitor.running():
        monitor.bracket(0.0)
        answers, speculated, window = _measured(bench, load, prompts[:number], pace)
        monitor.bracket(window[1])
    found = figures.summary(answers, pace.duration_s, bench.slo)
    result = {
        **found,
        **_asked(bench, concurrency),
        **speculated,
        "client_pace": pace.as_json() | (UNTOLD if args.client == "aiperf" else {}),
        "gpu": monitor.report(*window, found["total_output_tokens"]),
        "started": started,
        "finished": records.utc_now(),
    }
    records.write_json(output, result, "serving")
    if monitor.samples:
        monitor.write(output.with_suffix(".gpu.csv"))
    print(_line(result, output), flush=True)
    complete = result["completed"] == result["requested"]
    status = errors.PASS if complete else errors.NOT_MEASURED
    return max(status, _read_back(bench, result["acceptance"]))


def _read_back(bench: Bench, acceptance: Json | None) -> int:
    """Status of whether synthetic acceptance came true, in a run that asked for it."""
    if not bench.plan.get("synthetic_acceptance") or bench.method == NONE:
        return errors.PASS
    from utils.golden import export, registry

    golden = export.of_plan(bench.plan, registry.load(registry.FOLDER).goldens, bench.args.thinking)
    found = acceptance or {"acceptance_length": None, "verify_steps": None}
    verdict = export.read_back(golden, found["acceptance_length"], found["verify_steps"], TASK)
    print(verdict.line(), flush=True)
    return exit_status([verdict])


def _asked(bench: Bench, concurrency: int) -> Json:
    args = bench.args
    return {
        "task": TASK,
        "client": args.client,
        "prompts": sized_prompts.KIND,
        "dataset": bench.dataset,
        "model": args.model,
        "model_prefix": args.model_prefix,
        "isl": args.isl,
        "osl": args.osl,
        "concurrency": concurrency,
        "warmup_requests": concurrency,
        "run_id": bench.plan.get("run_id"),
    }


def _measured(
    bench: Bench, load: Load, prompts: Sequence[Prompt], pace: Pace
) -> tuple[list[Answer], Json, tuple[float, float]]:
    """Answers; what was accepted meanwhile, or why nobody knows; the window in unix seconds."""
    opened, counted, problem = None, None, None
    if bench.method != NONE:
        try:
            opened = accepted.begin(bench.target, bench.method)
        except NotMeasured as error:
            problem = str(error)
    with opened.meter.polling() if opened else contextlib.nullcontext():
        answers, began = _run(bench, load, prompts, pace)
    window = began, began + pace.duration_s
    if opened:
        try:
            counted = accepted.end(opened, answers)
        except NotMeasured as error:
            problem = str(error)
    acceptance = None
    if counted and counted.counts.steps:
        steps, taken = counted.counts.steps, counted.counts.accepted
        acceptance = {
            "acceptance_length": 1 + taken / steps,
            "accepted_tokens": taken,
            "verify_steps": steps,
            "source": counted.source,
        }
    elif counted:
        problem = "the server speculated in no step"
    return answers, {"acceptance": acceptance, "acceptance_problem": problem}, window


def _run(
    bench: Bench, load: Load, prompts: Sequence[Prompt], pace: Pace
) -> tuple[list[Answer], float]:
    """Answers, and when the first request was sent, in unix seconds."""
    if bench.args.client == "specgate":
        began = time.time()
        return client.run(load, prompts, bench.target.engine, pace), began
    tokenizer = bench.args.tokenizer or bench.plan.get("model_path")
    if not tokenizer:
        raise UsageError("name the tokenizer's folder with --tokenizer, AIPerf needs it")
    return aiperf_run.run(load, prompts, tokenizer, pace)


def _line(result: Json, output: Path) -> str:
    goodput = result["goodput_requests_per_s"]
    acceptance, gpu = result["acceptance"], result["gpu"]
    parts = [
        f"{result['completed']} of {result['requested']} requests",
        f"{result['output_tokens_per_s']:.1f} output tokens/s",
        f"goodput {goodput:.2f} requests/s" if goodput is not None else "",
        f"AL {acceptance['acceptance_length']:.4f}" if acceptance else "",
        f"no AL: {result['acceptance_problem']}" if result["acceptance_problem"] else "",
        f"first error: {result['first_error']}" if result["first_error"] else "",
        f"GPU power {gpu['state']}",
    ]
    shown = ", ".join(part for part in parts if part)
    return f"serving conc={result['concurrency']} by {result['client']}: {shown}; {output}"


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
