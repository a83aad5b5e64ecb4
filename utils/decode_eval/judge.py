"""The referee on a prompt set: is the output the target's own, and is the engine's AL the same?

Run it with a Python that has torch and transformers: `PYTHON -m utils.decode_eval referee …`.
"""

# torch is not installed where mypy runs.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from utils import errors, records
from utils.acceptance import estimate
from utils.decode_eval import prompts, weights
from utils.errors import UsageError
from utils.evals.prompt_files import PromptFile
from utils.records import Json

SCHEMA = "decode_eval_referee"


def main(argv: Sequence[str] | None = None) -> int:
    """Decode each prompt with the target alone and with the draft, in plain PyTorch.

    1 when an output differs from the target's own at temperature 0, or the AL lies outside the
    interval of the engine's record.
    """
    args = _parser().parse_args(argv)
    frozen = prompts.read(args.prompts)
    limit = len(frozen.prompts) if args.limit is None else args.limit
    engine = _engine_record(args, frozen, limit) if args.against else None
    record = _begin(args, frozen)
    for name, answer in _decode(args, frozen, limit):
        record["rows"].append({"id": name, **answer})
        print(f"{name}: {'same' if answer['same'] else 'DIFFERENT'}", flush=True)
    record.update(_figures(record["rows"], args.n))
    record["finished"] = records.utc_now()
    records.write_json(args.output, record, SCHEMA)
    return _verdict(record, engine)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m utils.decode_eval referee", description=main.__doc__
    )
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target")
    add("--draft", type=Path, required=True, help="snapshot: an EAGLE-3 head or a causal model")
    add(
        "--prompts", type=Path, required=True, help="a run's frozen set, OUTPUT_DIR/prompts/*.jsonl"
    )
    add("--limit", type=int, help="first prompts of it (default: all)")
    add("-n", type=int, required=True, help="draft length")
    add("--max-new-tokens", type=int, required=True)
    add("--temperature", type=float, default=0.0)
    add("--seed", type=int, default=0)
    add("--against", type=Path, help="the engine's AL record of the same prompts, al_<set>.json")
    add("--output", type=Path, required=True, help="record")
    return parser


def _engine_record(args: argparse.Namespace, frozen: PromptFile, limit: int) -> Json:
    """The AL record to compare with.

    Raises:
        UsageError: it is of other prompts, another N, length or temperature.
    """
    from utils.evals import al_record

    record = al_record.read(args.against)
    al_record.figures(record)  # never believed unchecked
    mine = (frozen.sha256, limit, args.n, args.max_new_tokens, args.temperature)
    theirs = (
        record["workload"]["prompts_sha256"],
        record["workload"]["prompts"],
        *(record[name] for name in ("num_speculative_tokens", "output_len", "temperature")),
    )
    if mine != theirs:
        raise UsageError(
            f"{args.against}: prompts, their number, N, length, temperature are {theirs}, "
            f"the referee's {mine}"
        )
    return record


def _decode(args: argparse.Namespace, frozen: PromptFile, limit: int) -> Any:
    """(id, what came of it) of each prompt."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from utils.decode_eval import eagle3_head, referee

    def load(folder: Path) -> Any:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    target, tokenizer = load(args.target), AutoTokenizer.from_pretrained(args.target)
    config = records.read_json(args.draft / weights.CONFIG)
    drafter: referee.Drafter = (
        referee.Eagle3Drafter(
            eagle3_head.load(args.draft), target.get_input_embeddings().weight.detach()
        )
        if config.get("architectures") == [eagle3_head.ARCHITECTURE]
        else referee.ModelDrafter(load(args.draft))
    )
    ends = target.generation_config.eos_token_id
    stop = set(ends if isinstance(ends, list) else [ends])
    generator = torch.Generator().manual_seed(args.seed)
    sampling = referee.Sampling(args.temperature, generator)
    for prompt in frozen.prompts[:limit]:
        ids = tokenizer.apply_chat_template(
            list(prompt.messages), add_generation_prompt=True, return_dict=True
        )["input_ids"]
        own = referee.decode_plain(target, ids, args.max_new_tokens, stop, sampling)
        spoken = referee.decode(target, drafter, ids, args.n, args.max_new_tokens, stop, sampling)
        same = spoken.tokens == own.tokens if args.temperature == 0 else None
        yield prompt.id, {"accepted": spoken.accepted, "tokens": spoken.tokens, "same": same}


def _begin(args: argparse.Namespace, frozen: PromptFile) -> Json:
    return {
        "schema": f"{SCHEMA}/1",
        "target_model": str(args.target),
        "draft": str(args.draft),
        "sha256": weights.digest_of(weights.read(args.draft)),
        "prompts_sha256": frozen.sha256,
        "num_speculative_tokens": args.n,
        "max_new_tokens": args.max_new_tokens,
        "temperature": args.temperature,
        "seed": args.seed,
        "rows": [],
        "started": records.utc_now(),
    }


def _figures(rows: Sequence[Json], n: int) -> Json:
    steps = [count for row in rows for count in row["accepted"]]
    positions = [sum(count > place for count in steps) for place in range(n)]
    found = estimate.estimate(
        accepted=sum(steps),
        steps=len(steps),
        drafted=n * len(steps),
        per_position=positions,
        rows=[(sum(row["accepted"]), len(row["accepted"])) for row in rows],
    )
    return {
        "acceptance_length": found.acceptance_length,
        "lower": found.lower,
        "upper": found.upper,
        "per_position": list(found.per_position),
    }


def _verdict(record: Json, engine: Json | None) -> int:
    different = [row["id"] for row in record["rows"] if row["same"] is False]
    al = record["acceptance_length"]
    print(f"{len(record['rows'])} prompts, {len(different)} differ from the target's own output")
    print(f"referee AL {al:.4f}, accepted at 1, 2…: {record['per_position']}")
    agrees = True
    if engine:
        low, high = (engine["estimate"][end] for end in ("lower", "upper"))
        agrees = low is not None and low <= al <= high
        word = "inside" if agrees else "OUTSIDE"
        print(f"engine  AL {engine['acceptance_length']:.4f}, {word} its interval {low}..{high}")
    return errors.FAIL if different or not agrees else errors.PASS
