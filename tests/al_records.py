"""AL records for tests: version 2 with a raw part that all checks agree with, and version 1."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from utils.acceptance import measure, window
from utils.acceptance.client import Answer
from utils.acceptance.engines import RequestCounts, vllm
from utils.acceptance.exposition import Samples, Series
from utils.evals import al_record
from utils.records import Json

URL = "http://127.0.0.1:8888/metrics"
SHA = "ab" * 32


def version_1(al: float = 2.27, steps: int = 10_000, **changes: Any) -> Json:
    """As InferenceX's pull request writes it."""
    accepted = round((al - 1) * steps)
    record: Json = {
        "speedbench_al_eval_version": 1,
        "task": "speedbench_al",
        "model": "deepseek-ai/DeepSeek-V4-Pro",
        "model_key": "deepseek-v4-pro",
        "model_prefix": "dsv4",
        "thinking_mode": "on",
        "num_speculative_tokens": 2,
        "category": "coding",
        "output_len": 4096,
        "temperature": 1.0,
        "framework": "vllm",
        "metric_source": "prometheus",
        "acceptance_length": round(al, 4),
        "accepted_tokens": accepted,
        "verify_steps": steps,
        "proposed_draft_tokens": 2 * steps,
        "draft_tokens": steps,
        "reference_acceptance_length": 2.27,
        "threshold_ratio": 0.95,
        "max_threshold_ratio": 1.05,
        "min_acceptance_length": 2.1565,
        "max_acceptance_length": 2.3835,
        "passed": True,
    }
    return {**record, **changes}


def version_2(
    per_position: Sequence[int] = (700, 570), steps: int = 1000, requests: int = 4, **changes: Any
) -> Json:
    """A sound measurement of dsv4 with MTP; a change to a nested part is merged into it."""
    n = len(per_position)
    rows = _answers(list(per_position), steps, requests)
    sampling = {"temperature": 1.0, "top_p": 1.0}
    record: Json = {
        "speedbench_al_eval_version": 2,
        "task": "speedbench_al",
        "model": "deepseek-ai/DeepSeek-V4-Pro",
        "model_prefix": "dsv4",
        "thinking_mode": "on",
        "num_speculative_tokens": n,
        "category": "coding",
        "output_len": 4096,
        "temperature": 1.0,
        "framework": "vllm",
        "metric_source": URL,
        "reference_acceptance_length": None,
        "min_acceptance_length": None,
        "max_acceptance_length": None,
        "passed": False,
        "error": None,
        "reason": None,
        "speculation": {
            "method": "mtp",
            "draft_model": None,
            "draft_sample_method": None,
            "rejection_sample_method": None,
        },
        "workload": {
            "dataset": "speed-bench",
            "dataset_revision": "r1",
            "proxy": False,
            "prompts_sha256": SHA,
            "payload_sha256": SHA,
            "prompts": requests,
            "turns": "first",
            "endpoint": "chat",
            "sampling": sampling,
            "chat_template_kwargs": {"thinking": True, "reasoning_effort": "high"},
            "concurrency": 1,
        },
        "server": {
            "base_url": "http://127.0.0.1:8888",
            "engine_version": "0.32.0",
            "argv": None,
            "image": None,
        },
        "run": {
            "run_id": None,
            "commit": None,
            "recipe": None,
            "started": "2026-12-01T10:00:00.000000Z",
            "finished": "2026-12-01T10:05:00.000000Z",
        },
        "raw": {
            "before": _scrape([0] * n, 0, []),
            "after": _scrape(per_position, steps, rows),
            "requests": [row.as_json() for row in rows],
        },
    }
    return refilled(merged(record, changes))


def merged(record: Json, changes: Json) -> Json:
    """A copy with changes put in; a dict is merged where a dict was."""
    result = copy.deepcopy(record)
    for name, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = {**result[name], **value} if both else value
    return result


def refilled(record: Json) -> Json:
    """The record with its derived part computed from its raw part."""
    asked = al_record.asked_of(record)
    raw = record["raw"]
    derived = measure.derive(
        vllm.ENGINE,
        asked,
        window.Scrape.from_json(raw["before"]),
        window.Scrape.from_json(raw["after"]),
        [Answer.from_json(row) for row in raw["requests"]],
    )
    al_record.fill(record, derived)
    return record


def _answers(per_position: list[int], steps: int, requests: int) -> list[Answer]:
    """Requests that share steps and accepted tokens; a step gives one chunk, prefill another."""
    n, accepted = len(per_position), sum(per_position)
    rows = []
    for i in range(requests):
        mine = steps // requests + (i < steps % requests)
        taken = accepted // requests + (i < accepted % requests)
        chunks = [1, *(1 + taken // mine + (k < taken % mine) for k in range(mine))]
        row = Answer(
            id=f"q{i}",
            ok=True,
            status=200,
            tries=1,
            ttft_s=0.1,
            e2e_s=1.0,
            finish_reason="stop",
            prompt_tokens=20,
            completion_tokens=sum(chunks),
            chunks=len(chunks),
            chunk_tokens=chunks,
            text=f"answer {i}",
            reasoning=f"because {i}",
            spec=RequestCounts(steps=mine, accepted=taken, drafted=n * mine),
        )
        rows.append(row)
    return rows


def _scrape(per_position: Sequence[int], steps: int, rows: Sequence[Answer]) -> Json:
    samples: Samples = {}

    def put(name: str, value: float, **labels: str) -> None:
        samples[Series(URL, name, tuple(sorted({"engine": "0", **labels}.items())))] = float(value)

    put(vllm.DRAFTS, steps)
    put(vllm.DRAFT_TOKENS, steps * len(per_position))
    put(vllm.ACCEPTED, sum(per_position))
    for position, value in enumerate(per_position):
        put(vllm.ACCEPTED_PER_POSITION, value, position=str(position))
    put(vllm.REQUESTS, len(rows), finished_reason="stop")
    put(vllm.PROMPT_TOKENS, sum(row.prompt_tokens or 0 for row in rows))
    put(vllm.GENERATED_TOKENS, sum(row.completion_tokens or 0 for row in rows))
    return window.Scrape("2026-12-01T10:00:00Z", samples).as_json()
