#!/usr/bin/env python3
"""A thin serving benchmark: real text of the asked length, closed loop, one JSON result.

Prompts are cut from the model's own prompt set rather than drawn at random: what a drafter makes
of random tokens says nothing about what it makes of text.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[2])

import argparse
import itertools
import time
from collections.abc import Sequence
from typing import Any

import requests

from utils import errors, models, records
from utils.acceptance import client, engines
from utils.acceptance.client import Answer, Load, Prompt
from utils.acceptance.window import local_session
from utils.errors import NotMeasured
from utils.evals.speedbench import prepared_path, read_prompts

PERCENTILES = (50, 90, 99)
TASK = "serving"


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    model = models.load(args.model_prefix)
    plan = records.read_json(args.plan) if args.plan else {}
    started = records.utc_now()
    corpus = read_prompts(
        prepared_path(args.prompts_dir, model.prompt_set), model.prompt_set.category
    )
    prompts = build_prompts(args, [p.messages[0]["content"] for p in corpus.prompts])
    mode = model.mode(args.thinking)
    load = Load(
        base_url=args.base_url.rstrip("/"),
        model=args.model,
        sampling=mode.sampling,
        chat_template_kwargs=mode.chat_template_kwargs,
        output_len=args.osl,
        concurrency=args.concurrency,
        total_deadline_s=args.deadline_s,
    )
    engine = engines.load(args.engine)
    client.run(load, prompts[: args.concurrency], engine)  # warm-up, not counted
    began = time.perf_counter()
    answers = client.run(load, prompts, engine)
    result = {
        **summary(answers, time.perf_counter() - began),
        "task": TASK,
        "dataset": corpus.dataset,
        "model": args.model,
        "model_prefix": args.model_prefix,
        "isl": args.isl,
        "osl": args.osl,
        "concurrency": args.concurrency,
        "run_id": plan.get("run_id"),
        "started": started,
        "finished": records.utc_now(),
    }
    records.write_json(args.output, result, "serving")
    print(
        f"serving conc={args.concurrency}: {result['completed']} of {result['requested']} requests,"
        f" {result['output_tokens_per_s']:.1f} output tokens/s; {args.output}"
    )
    return errors.PASS if result["completed"] == result["requested"] else errors.NOT_MEASURED


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
    add("--concurrency", type=int, required=True)
    add("--num-prompts", type=int, required=True)
    add("--prompts-dir", type=Path, default=Path("/tmp/speed_bench_data"))
    add("--deadline-s", type=float, default=4 * 3600.0)
    add("--plan", type=Path, help="plan.json of the run")
    add("--output", type=Path, required=True)
    return parser


def build_prompts(args: argparse.Namespace, texts: Sequence[str]) -> list[Prompt]:
    """Prompts whose rendered length is args.isl tokens, by the server's own tokenizer.

    Raises:
        NotMeasured: the server can't tokenize, or the template alone is longer than asked.
    """
    session = local_session()
    empty = _count(session, args, "")
    if empty >= args.isl:
        raise NotMeasured(f"ISL={args.isl} is not more than the chat template's {empty} tokens")
    source = itertools.cycle(texts)
    return [
        Prompt(f"serving/{i}", ({"role": "user", "content": _fill(session, args, source, i)},))
        for i in range(args.num_prompts)
    ]


def _fill(session: requests.Session, args: argparse.Namespace, source: Any, number: int) -> str:
    """Text up to the asked length, found by bisection; the number makes each one unique.

    It is cut between characters: cut between words, short prompts would lack several percent.
    """
    start = text = f"Request {number}."
    while _count(session, args, text) < args.isl:
        text += " " + " ".join(next(source).split())
    low, high = len(start), len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if _count(session, args, text[:middle]) <= args.isl:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _count(session: requests.Session, args: argparse.Namespace, text: str) -> int:
    body = {"model": args.model, "messages": [{"role": "user", "content": text}]}
    url = f"{args.base_url.rstrip('/')}/tokenize"
    try:
        response = session.post(url, json=body, timeout=30)
        response.raise_for_status()
        return int(response.json()["count"])
    except (requests.RequestException, ValueError, KeyError) as error:
        raise NotMeasured(f"{url} can't count tokens: {error}") from error


def summary(answers: Sequence[Answer], duration_s: float) -> dict[str, Any]:
    """Counts over all requests, latencies over the successful ones only; seconds, tokens."""
    good = [a for a in answers if a.ok and a.ttft_s is not None and a.e2e_s is not None]
    tokens = [a.completion_tokens or 0 for a in good]
    per_token = [
        ((a.e2e_s or 0.0) - (a.ttft_s or 0.0)) / (n - 1)
        for a, n in zip(good, tokens, strict=True)
        if n > 1
    ]
    return {
        "requested": len(answers),
        "completed": len(good),
        "failed": len(answers) - len(good),
        "first_error": next((a.error for a in answers if a.error), None),
        "duration_s": duration_s,
        "total_input_tokens": sum(a.prompt_tokens or 0 for a in good),
        "total_output_tokens": sum(tokens),
        "output_tokens_per_s": sum(tokens) / duration_s,
        "ttft_s": percentiles([a.ttft_s or 0.0 for a in good]),
        "tpot_s": percentiles(per_token),
        "e2e_s": percentiles([a.e2e_s or 0.0 for a in good]),
    }


def percentiles(values: Sequence[float]) -> dict[str, float] | None:
    """Nearest-rank percentiles; None without values."""
    if not values:
        return None
    ranked = sorted(values)
    return {f"p{p}": ranked[max(0, -(-p * len(ranked) // 100) - 1)] for p in PERCENTILES}


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
