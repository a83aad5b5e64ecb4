"""An AL record while it is being made: first what was asked, then what was seen."""

from __future__ import annotations

import argparse
import os

from utils import records
from utils.acceptance import client, measure
from utils.acceptance.argv import masked
from utils.acceptance.recognise import Recognised
from utils.evals import al_record
from utils.evals.prompt_files import PromptFile
from utils.records import Json

SPECULATION = ("method", "draft_model", "draft_sample_method", "rejection_sample_method")


def begin(
    args: argparse.Namespace,
    plan: Json,
    load: client.Load,
    prompts: PromptFile,
    category: str,
    engine: Recognised,
) -> Json:
    """A record before anything was seen: a failed attempt leaves it with its error."""
    return {
        al_record.VERSION_KEY: al_record.VERSION,
        "task": al_record.TASK,
        "model": args.model,
        "model_prefix": args.model_prefix,
        "thinking_mode": args.thinking,
        "num_speculative_tokens": args.num_spec_tokens,
        "category": category,
        "output_len": load.output_len,
        "temperature": load.sampling["temperature"],
        "framework": engine.engine.name,
        "metric_source": "",
        "quantity": None,
        **dict.fromkeys(
            ("acceptance_length", "accepted_tokens", "verify_steps", "proposed_draft_tokens")
        ),
        **dict.fromkeys(
            ("reference_acceptance_length", "min_acceptance_length", "max_acceptance_length")
        ),
        "passed": False,
        "error": None,
        "reason": None,
        "estimate": None,
        "checks": [],
        "speculation": {
            "method": args.spec_method or plan.get("spec_decoding"),
            **{name: plan.get(name) for name in SPECULATION[1:]},
        },
        "workload": _workload(args, load, prompts, engine),
        "server": _server(args, load, engine),
        "raw": {"before": None, "after": None, "requests": [], "client": None},
        "run": {
            "run_id": plan.get("run_id"),
            "commit": plan.get("commit"),
            "recipe": plan.get("recipe"),
            "started": records.utc_now(),
            "finished": None,
        },
    }


def _workload(
    args: argparse.Namespace, load: client.Load, prompts: PromptFile, engine: Recognised
) -> Json:
    return {
        "dataset": prompts.dataset,
        "dataset_revision": prompts.revision,
        "proxy": prompts.proxy,
        "prompts_sha256": prompts.sha256,
        "payload_sha256": client.payload_digest(load, prompts.prompts, engine.engine),
        "prompts": len(prompts.prompts),
        "requests": len(client.planned(prompts.prompts)),
        "turns": args.turns,
        "endpoint": load.endpoint,
        "sampling": dict(load.sampling),
        "chat_template_kwargs": dict(load.chat_template_kwargs),
        "concurrency": load.concurrency,
    }


def _server(args: argparse.Namespace, load: client.Load, engine: Recognised) -> Json:
    return {
        "base_url": load.base_url,
        "metrics_urls": args.metrics_url or [],
        "recognised_by": engine.by,
        "engine_version": None,
        "argv": None,
        "image": os.environ.get("IMAGE") or None,
        "prefix_caching": None,
        "varying_draft_length": [],
        "forced_acceptance_lengths": [],
        "drafts_per_step": None,
    }


def keep(seen: measure.Observation, record: Json) -> None:
    said, spoken = seen.said, seen.said.speculation
    record["server"].update(
        engine_version=said.engine_version,
        argv=masked(said.argv) if said.argv else None,
        metrics_urls=list(seen.metrics_urls) or record["server"]["metrics_urls"],
        prefix_caching=spoken.prefix_caching,
        varying_draft_length=list(spoken.varying),
        forced_acceptance_lengths=list(said.forced_lengths),
        drafts_per_step=spoken.drafts_per_step,
    )
    for name in SPECULATION:
        if record["speculation"][name] is None:
            record["speculation"][name] = getattr(spoken, name)
    record["raw"] = {
        "before": seen.before.as_json() if seen.before else None,
        "after": seen.after.as_json() if seen.after else None,
        "requests": [answer.as_json() for answer in seen.answers],
        "client": seen.pace.as_json() if seen.pace else None,
    }
