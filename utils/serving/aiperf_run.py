"""AIPerf as a second client of the serving benchmark: the same prompts, the same figures.

It ends with status 0 however many requests fail, and leaves no summary when all do; so its rows
are read here one by one, failures included, and whatever it lost count of is refused. What it
would do by default is said otherwise: its own request count, its own tokenizer's counts, probes of
GPU exporters, a busy loop that takes a core from a server that needs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from array import array
from collections.abc import Sequence
from pathlib import Path

from utils import records
from utils.acceptance.client import Answer, Load, Pace, Prompt
from utils.acceptance.load import KEY_VARIABLE
from utils.embedded_engine import install
from utils.errors import NotMeasured, UsageError
from utils.progress import tail
from utils.records import Json

# Any rate far above what is served: with one it waits for a free slot, without it spins.
REQUESTS_PER_S = "10000"
ROWS, PROMPTS, SUMMARY = "profile_export.jsonl", "prompts.jsonl", "profile_export_aiperf.json"


def run(
    load: Load, prompts: Sequence[Prompt], tokenizer: str, pace: Pace
) -> tuple[list[Answer], float]:
    """Send every prompt with AIPerf; answers, and when it sent the first, in unix seconds.

    pace gets duration_s and start_lag_s, all that can be told of it.

    tokenizer: a folder, because nothing is loaded from a hub here.

    Raises:
        UsageError: AIPerf isn't installed, or there is no such folder.
        NotMeasured: it left no rows, or fewer or other ones than requests were asked for.
    """
    if not Path(tokenizer).is_dir():
        raise UsageError(
            f"AIPerf needs the tokenizer's folder, {tokenizer} is none: set MODEL_PATH to one"
        )
    program = install.aiperf_environment(os.environ).removeprefix("AIPERF=")
    with tempfile.TemporaryDirectory(prefix="specgate-aiperf.") as name:
        folder = Path(name)
        (folder / PROMPTS).write_text(
            "".join(json.dumps({"text": p.messages[0]["content"]}) + "\n" for p in prompts),
            encoding="utf-8",
        )
        done = subprocess.run(
            command(program, load, len(prompts), tokenizer, folder),
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        rows = read_rows(folder / ROWS, done)
        answers = [to_answer(row) for row in rows]
        refuse_lost(folder, len(prompts), answers, done.returncode)
    return answers, began(rows, pace)


def began(rows: Sequence[Json], pace: Pace) -> float:
    """When the first request was sent, in unix seconds; fills in the pace."""
    times = [row["metadata"] for row in rows]
    first = min(time["request_start_ns"] for time in times)
    lag = max(time["request_start_ns"] - time["credit_issued_ns"] for time in times)
    pace.duration_s = (max(time["request_end_ns"] for time in times) - first) / 1e9
    pace.start_lag_s = lag / 1e9
    return float(first / 1e9)


def command(program: str, load: Load, requests: int, tokenizer: str, folder: Path) -> list[str]:
    """Its command line. `max_tokens` goes as an extra input, as our own client sends it."""
    if load.endpoint != "chat":
        raise UsageError(f"AIPerf is run on the chat route only, not {load.endpoint}")
    if os.environ.get(KEY_VARIABLE):
        raise UsageError(f"AIPerf would show {KEY_VARIABLE} on its command line: unset it")
    extra: Json = {**load.sampling, "max_tokens": load.output_len}
    if load.chat_template_kwargs:
        extra["chat_template_kwargs"] = dict(load.chat_template_kwargs)
    argv = [program, "profile", "--model", load.model, "--url", load.base_url]
    argv += ["--endpoint-type", "chat", "--streaming", "--tokenizer", tokenizer]
    argv += ["--custom-dataset-type", "single_turn", "--input-file", str(folder / PROMPTS)]
    argv += ["--dataset-sampling-strategy", "sequential"]
    argv += ["--concurrency", str(load.concurrency), "--request-count", str(requests)]
    argv += ["--request-rate", REQUESTS_PER_S, "--arrival-pattern", "constant"]
    argv += ["--request-timeout-seconds", str(load.request_deadline_s)]
    argv += ["--extra-inputs", json.dumps(extra), "--use-server-token-count"]
    argv += ["--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"]
    argv += ["--artifact-dir", str(folder)]
    return argv


def environment(folder: Path) -> dict[str, str]:
    """Ours without what makes it look a folder up on a hub; its leftovers go into `folder`."""
    left_out = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "PYTHONPATH", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "TMPDIR": str(folder), "no_proxy": "*", "NO_PROXY": "*"}


def read_rows(path: Path, done: subprocess.CompletedProcess[str]) -> list[Json]:
    """One row per request, in the order of their start.

    Raises:
        NotMeasured: there are none, or one that can't be read.
    """
    said = tail(done.stdout)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows: list[Json] = [records.parse_json(line) for line in lines]
        rows = [row for row in rows if row["metadata"]["benchmark_phase"] == "profiling"]
        rows.sort(key=lambda row: int(row["metadata"]["request_start_ns"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotMeasured(f"AIPerf's {path.name} can't be read: {error}\n{said}") from error
    if not rows:
        raise NotMeasured(f"AIPerf ended with {done.returncode} and sent nothing\n{said}")
    return rows


def to_answer(row: Json) -> Answer:
    """One of its rows as our own client would have seen it; its figures are in milliseconds."""
    name = f"serving/{row['metadata']['session_num']}"
    if failed := row.get("error"):
        text = f"{failed.get('type')}: {failed.get('message')}"[:200]
        return Answer(name, status=failed.get("code"), error=text)
    metrics = row["metrics"]
    try:
        return Answer(
            name,
            ok=True,
            status=200,
            ttft_s=metrics["time_to_first_token"]["value"] / 1e3,
            e2e_s=metrics["request_latency"]["value"] / 1e3,
            prompt_tokens=metrics["usage_prompt_tokens"]["value"],
            completion_tokens=metrics["usage_completion_tokens"]["value"],
            gaps_s=array(
                "d", (gap / 1e3 for gap in metrics.get("inter_chunk_latency", {}).get("value", ()))
            ),
        )
    except KeyError as error:
        return Answer(name, error=f"AIPerf's row has no {error}")


def refuse_lost(folder: Path, asked: int, answers: Sequence[Answer], status: int) -> None:
    """Raises:
    NotMeasured: rows are missing, or it stopped before the end while something succeeded.
    """
    if len(answers) != asked:
        raise NotMeasured(
            f"AIPerf wrote {len(answers)} rows for {asked} requests", "requests_vanished"
        )
    succeeded = any(answer.ok for answer in answers)
    if not succeeded:
        return  # it ends with 1 and writes no summary; the rows say why
    if status:
        raise NotMeasured(f"AIPerf ended with status {status} after it had answers")
    summary = records.read_json(folder / SUMMARY)
    if summary.get("is_complete") is not True or summary.get("was_cancelled") is not False:
        raise NotMeasured("AIPerf's own summary says that it was cut short")
