"""A prompt set as a measured workload: the project's one instrument, and its AL record."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from utils import records
from utils.acceptance import client, engines, estimate, measure
from utils.acceptance.client import Load
from utils.acceptance.recognise import Recognised
from utils.decode_eval.config import DecodeEvalConfig, PromptSource
from utils.decode_eval.converters import Draft
from utils.decode_eval.jobs import sampling
from utils.decode_eval.serving import Server
from utils.errors import HarnessError
from utils.evals import al_attempt, al_record
from utils.evals.prompt_files import PromptFile
from utils.records import Json

STREAMS_ALONE = "openai"


def load_of(config: DecodeEvalConfig, source: PromptSource, server: Server, left_s: float) -> Load:
    """How the prompts of a set are sent; left_s: seconds until all must be done."""
    return Load(
        base_url=server.base_url,
        model=config.target_model,
        sampling=sampling(config),
        chat_template_kwargs=config.chat_template_kwargs if source.endpoint == "chat" else {},
        output_len=source.max_new_tokens,
        concurrency=config.concurrency,
        request_deadline_s=min(config.request_timeout_s, left_s),
        total_deadline_s=left_s,
        stall_s=config.stall_s,
        endpoint=source.endpoint,
    )


def measure_set(
    config: DecodeEvalConfig,
    source: PromptSource,
    prompts: PromptFile,
    server: Server,
    draft: Draft | None,
    *,
    path: Path,
    left_s: float,
) -> tuple[Json, Json]:
    """One prompt set on a live server: its AL record, written to path, and its part of a result.

    A failed attempt is a record with its error. draft: None where only the server knows.
    left_s: seconds until it must be done.
    """
    record = _measure(config, source, prompts, server, draft, left_s)
    records.write_json(path, record, "al_record_v2")
    asked = _requests_digest(config, source, prompts)
    return record, _figures(record, source.name, path.name, asked)


def _measure(
    config: DecodeEvalConfig,
    source: PromptSource,
    prompts: PromptFile,
    server: Server,
    draft: Draft | None,
    left_s: float,
) -> Json:
    engine = Recognised(engines.load(config.engine), "the configuration")
    load = load_of(config, source, server, left_s)
    asked = argparse.Namespace(
        model=config.target_model,
        model_prefix=config.target_model.rstrip("/").rpartition("/")[2],
        thinking=config.thinking,
        num_spec_tokens=config.num_speculative_tokens,
        spec_method=(draft.method if draft else config.method) or None,
        turns="first",
        metrics_url=[],
    )
    plan = {"draft_model": str(draft.path) if draft else None}
    record = al_attempt.begin(asked, plan, load, prompts, source.name, engine)
    target = measure.Target(
        base_url=load.base_url,
        metrics_urls=("none",) if config.engine == STREAMS_ALONE else (),
        engine=engine.engine,
        model=config.target_model,
        server_pid=server.pid,
    )
    try:
        _observe(target, load, prompts, record)
    except HarnessError as error:
        reason = getattr(error, "reason", "unusable_configuration")
        record.update(error=str(error), reason=reason)
    record["run"]["finished"] = records.utc_now()
    return record


def _observe(target: measure.Target, load: Load, prompts: PromptFile, record: Json) -> None:
    seen = measure.Observation()
    try:
        measure.observe(target, al_record.asked_of(record), load, prompts.prompts, seen)
    finally:
        al_attempt.keep(seen, record)
    _, _, derived = al_record.rederive(record)
    al_record.fill(record, derived)


def _requests_digest(config: DecodeEvalConfig, source: PromptSource, prompts: PromptFile) -> str:
    """What was asked, whatever the server calls its model."""
    nowhere = Server("http://127.0.0.1", None, None, 0.0)
    load = replace(load_of(config, source, nowhere, config.timeout_s), model="")
    return client.payload_digest(load, prompts.prompts, engines.load(config.engine))


def _figures(record: Json, name: str, file: str, requests_sha256: str) -> Json:
    """A set's part of a result, from its AL record."""
    answers = record["raw"]["requests"]
    good = [row for row in answers if row["ok"]]
    tokens = sum(row["completion_tokens"] for row in good)
    pace = record["raw"].get("client") or {}
    valid = record["error"] is None
    found: dict[str, Any] = (record["estimate"] if valid else None) or {}
    steps = record["verify_steps"] if valid else None
    return {
        "name": name,
        "record": file,
        "prompts_sha256": record["workload"]["prompts_sha256"],
        "requests_sha256": requests_sha256,
        "prompts": record["workload"]["prompts"],
        "completed": len(good),
        **{
            key: found.get(key)
            for key in (
                *("acceptance_length", "standard_error", "lower", "upper"),
                *("mean_request_acceptance_length", "draft_acceptance_rate"),
            )
        },
        "accepted_tokens": record["accepted_tokens"] if valid else None,
        "verify_steps": steps,
        "per_position": found.get("per_position", []),
        "conditional": found.get("conditional", []),
        "output_tokens": tokens,
        "output_tokens_per_s": tokens / pace["duration_s"] if pace.get("duration_s") else None,
        "tokens_per_step": (tokens - len(good)) / steps if steps else None,
        "rows": [list(row) for row in al_record.figures(record).rows] if valid else [],
        "reason": record["reason"],
        "error": record["error"],
    }


def pooled(sets: Sequence[Json]) -> Json:
    """The figures of all sets together, of which each is valid."""
    accepted = sum(one["accepted_tokens"] for one in sets)
    steps = sum(one["verify_steps"] for one in sets)
    rows = [(a, s) for one in sets for a, s in one["rows"]]
    found = estimate.estimate(
        accepted=accepted, steps=steps, drafted=None, per_position=None, rows=rows
    )
    return {
        "acceptance_length": found.acceptance_length,
        "standard_error": found.standard_error,
        "lower": found.lower,
        "upper": found.upper,
        "accepted_tokens": accepted,
        "verify_steps": steps,
    }
