#!/usr/bin/env python3
"""One lm-eval point against a live server: one results file, or a failure with a name."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[2])

import argparse
import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import requests

from utils import arguments, errors, models, processes, records
from utils.acceptance.window import local_session
from utils.errors import NotMeasured, UsageError
from utils.progress import Progress, last_line, tail

TASKS = Path(__file__).parents[2] / "benchmarks" / "tasks"
WATCH_S = 1.0
_BAR = re.compile(r"(\d+)/([1-9]\d*) \[")  # of tqdm


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    model = models.load(args.model_prefix)
    mode = model.mode(args.thinking)
    tasks = args.task or model.eval_tasks
    points = {task: _config(args, task, mode) for task in tasks}
    failed = [task for task, config in points.items() if not _point(args, task, config)]
    return errors.NOT_MEASURED if failed else errors.PASS


def _point(args: argparse.Namespace, task: str, config: dict[str, Any]) -> bool:
    """Whether a point came back; the others run all the same."""
    cell = f"{task} conc={args.concurrency}"
    try:
        _preflight(args, config)
        print(f"lm-eval {cell}: {_run_point(args, task, config)}", flush=True)
    except NotMeasured as error:
        print(f"error: {cell}: {error}", file=sys.stderr, flush=True)
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lm_eval_run", description=__doc__)
    add = parser.add_argument
    add("--base-url", required=True, type=arguments.base_url, help="http://host:port, without /v1")
    add("--model", required=True, help="served model name")
    add("--model-prefix", required=True, help="key in models.yaml")
    add("--thinking", required=True, choices=["on", "off"])
    add("--concurrency", required=True, type=arguments.count)
    add("--result-dir", required=True, type=Path)
    add("--task", action="append", help="default: the model's eval_tasks")
    add("--plan", type=Path, help="plan.json of the run")
    add("--server-pid", type=arguments.count, help="process that runs the engine")
    add("--request-timeout-s", type=arguments.count, default=1800)
    add("--deadline-s", type=arguments.seconds, default=4 * 3600.0, help="for the whole point")
    return parser


def token_budget(task: str, thinking: str) -> int:
    """Maximum new tokens of a task's answers.

    Raises:
        UsageError: no budget is written down for this task and mode.
    """
    path = TASKS / "budgets.yaml"
    budgets = records.read_yaml(path, "budgets")["max_new_tokens"]
    if thinking not in budgets.get(task, {}):
        raise UsageError(f"{path} has no budget for task {task!r} with thinking {thinking}")
    return int(budgets[task][thinking])


def _config(args: argparse.Namespace, task: str, mode: models.Mode) -> dict[str, Any]:
    """What lm-eval is asked, as its --config file: greedy, every field explicit."""
    kwargs = dict(mode.chat_template_kwargs)
    return {
        "model": "local-chat-completions",
        "model_args": {
            "model": args.model,
            "base_url": f"{args.base_url.rstrip('/')}/v1/chat/completions",
            "num_concurrent": args.concurrency,
            "max_retries": 3,
            "timeout": args.request_timeout_s,
            "tokenized_requests": False,
        },
        "tasks": [task],
        "include_path": str(TASKS),
        "apply_chat_template": True,
        "log_samples": True,
        "gen_kwargs": {
            "temperature": 0.0,
            "top_p": 1.0,
            "max_gen_toks": token_budget(task, args.thinking),
            **({"chat_template_kwargs": kwargs} if kwargs else {}),
        },
    }


def _preflight(args: argparse.Namespace, config: dict[str, Any]) -> None:
    """One real request to lm-eval's own URL, before it spends minutes on a dead server."""
    if args.server_pid is not None and not processes.alive(args.server_pid):
        raise NotMeasured(f"the engine (pid {args.server_pid}) is gone; see its log")
    url = config["model_args"]["base_url"]
    body = {
        "model": args.model,
        "messages": [{"role": "user", "content": "What is 1 + 1?"}],
        "max_tokens": 4,
        "temperature": 0.0,
    }
    try:
        response = local_session().post(url, json=body, timeout=args.request_timeout_s)
    except requests.RequestException as error:
        raise NotMeasured(f"{url} does not answer: {error}") from error
    if response.status_code != 200:
        raise NotMeasured(
            f"{url} answers {response.status_code} to one request of model {args.model}: "
            f"{response.text[:200]}"
        )


def _run_point(args: argparse.Namespace, task: str, config: dict[str, Any]) -> Path:
    """Run lm-eval in an empty folder, then move its one results file to its place."""
    args.result_dir.mkdir(parents=True, exist_ok=True)
    point = f"{task}_conc{args.concurrency}"
    target: Path = args.result_dir / f"results_{point}.json"
    log = args.result_dir / f"lm_eval_{point}.log"
    config_file = args.result_dir.absolute() / f"lm_eval_{point}.config.json"
    records.write_json(config_file, config)
    with tempfile.TemporaryDirectory(dir=args.result_dir, prefix=f".lm_eval_{point}.") as scratch:
        output = Path(scratch).absolute()
        status = _run_lm_eval(config_file, output, log, args.deadline_s)
        if status != 0:
            raise NotMeasured(f"lm-eval ended with status {status}; {_said(log)}")
        result = _only(output, "results_*.json", log)
        samples = _only(output, f"samples_{task}_*.jsonl", log)
        os.replace(samples, args.result_dir / f"samples_{point}.jsonl")
        os.replace(result, target)
    return target


def _run_lm_eval(config: Path, output: Path, log: Path, deadline_s: float) -> int:
    command = [sys.executable, "-m", "lm_eval", "run", "--config", str(config)]
    command += ["--output_path", str(output)]
    environ = {**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1", "no_proxy": "*", "NO_PROXY": "*"}
    environ.pop("PYTHONPATH", None)  # our `utils` must not stand in for a task's own
    # lm-eval must never outlive its driver.
    with log.open("w") as lines, errors.ending_on_term():
        process = subprocess.Popen(
            command,
            cwd=TASKS,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=subprocess.STDOUT,
        )
        try:
            return _wait(process, log, deadline_s)
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], log: Path, deadline_s: float) -> int:
    """Its exit status; how far it is, its own bar says in its log."""
    deadline = time.monotonic() + deadline_s
    with Progress(log.stem.replace("_", " "), limit_s=deadline_s) as shown:
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(WATCH_S)
            note = last_line(log)
            if counted := _BAR.search(note):
                done, shown.total = map(float, counted.groups())
                shown.step(done=done)
            else:
                shown.show(note)
    raise NotMeasured(f"lm-eval did not end within {deadline_s:g} s; {log}")


def _only(folder: Path, pattern: str, log: Path) -> Path:
    """lm-eval may end with status 0 and without results, and its file names hold a time."""
    found: list[Path] = sorted(folder.rglob(pattern))
    if len(found) != 1:
        raise NotMeasured(f"lm-eval left {len(found)} files {pattern}, want 1; {_said(log)}")
    return found[0]


def _said(log: Path) -> str:
    return f"{log}:\n{tail(log.read_text(encoding='utf-8', errors='replace'))}"


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
