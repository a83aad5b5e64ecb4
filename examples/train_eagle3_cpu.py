#!/usr/bin/env python3
"""Train an EAGLE-3 head on a CPU, and watch how long its drafts really are while it trains.

The target is the SmolLM2-135M of the embedded engine. The head learns from the target's own greedy
answers; every few steps decode eval serves target and head in a real vLLM, on prompts that the head
never sees, beside the training that goes on. Run it with the engine's Python, as `make example`
does; killed and started again it goes on from its checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[1])

import argparse
import dataclasses
import hashlib
import itertools
import json
import logging
import math
import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import requests
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

from utils import errors, records
from utils.decode_eval import serving
from utils.decode_eval.config import DecodeEvalConfig, resolve_decode_eval_config
from utils.decode_eval.eagle3_head import ARCHITECTURE, Eagle3Head, Past, feature_layers
from utils.decode_eval.loop import Session, session
from utils.embedded_engine import layout
from utils.records import Json

N, DRAFT_VOCABULARY = 3, 2048
LEARNING_RATE, WARM_UP_STEPS = 1e-3, 20
STEP_WEIGHT = 0.8  # of each further draft step in the loss
EVAL_TIMEOUT_S = 300.0
CPU_ENGINE = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
LANGUAGES = ("Python", "C", "JavaScript", "Go", "Rust", "Java", "bash", "SQL")
TASKS = (
    *("reverse a string", "sort a list of integers", "count words in a file", "parse a CSV file"),
    *("compute the factorial of n", "check whether a number is prime", "transpose a matrix"),
    *("merge two sorted arrays", "find the maximum element", "implement a stack"),
    *("implement a queue", "compute Fibonacci numbers", "remove duplicates from a list"),
    *("read a JSON file", "convert Celsius to Fahrenheit", "validate an email address"),
    *("implement binary search", "sum the digits of a number", "generate a random password"),
    "find the longest word in a sentence",
)


class Row(NamedTuple):
    """A prompt and its answer, and what the head sees of them."""

    ids: Tensor
    start: int  # of the answer
    embedded: Tensor  # (tokens + N, hidden)
    features: Tensor  # (tokens, 3 · hidden)


def main() -> int:
    args = arguments()
    torch.set_num_threads(1)  # the other core is the engine's
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
    args.output.mkdir(parents=True, exist_ok=True)
    prompts = [f"Write a {a} function to {b}." for a, b in itertools.product(LANGUAGES, TASKS)]
    random.Random(0).shuffle(prompts)
    held = args.eval_prompts
    config = decode_eval(args, prompts[:held])
    answers = target_answers(config, prompts[: held + args.prompts], args.answer_tokens)
    target = AutoModelForCausalLM.from_pretrained(config.target_model, dtype=torch.bfloat16).eval()
    rows = [seen_by_head(target, answer) for answer in answers]
    torch.manual_seed(0)
    head = new_head(target, rows[held:])
    with session(config) as evals:
        train(head, rows[held:], rows[:held], args, evals)
    return errors.PASS


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", type=Path, default=layout.engine().model)
    parser.add_argument("--output", type=Path, default=Path("/tmp/specgate_example"))
    parser.add_argument("--prompts", type=int, default=136, help="to train on, at most 136")
    parser.add_argument("--answer-tokens", type=int, default=192)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--every", type=int, default=136, help="optimizer steps between evals")
    parser.add_argument("--eval-prompts", type=int, default=24, help="which training never sees")
    parser.add_argument("--eval-tokens", type=int, default=64)
    return parser.parse_args()


def decode_eval(args: argparse.Namespace, unseen: list[str]) -> DecodeEvalConfig:
    """What is measured: this part would stand in a training's YAML."""
    prompts = args.output / "unseen.jsonl"
    records.write_text(prompts, "".join(json.dumps({"prompt": text}) + "\n" for text in unseen))
    core = max(os.sched_getaffinity(0))  # training has the other one
    block = {
        "every_steps": args.every,
        "target_model": str(args.target),
        "output_dir": str(args.output),
        "num_speculative_tokens": N,
        "cuda_visible_devices": "cpu",
        "engine_python": sys.executable,
        "engine_args": ["--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "32"],
        "engine_env": {**CPU_ENGINE, "VLLM_CPU_OMP_THREADS_BIND": str(core)},
        "input_data": str(prompts),
        "prompt_column": "prompt",
        "num_prompts": args.eval_prompts,
        "max_new_tokens": args.eval_tokens,
        "timeout_s": EVAL_TIMEOUT_S,
    }
    config = resolve_decode_eval_config(block, training_devices=())
    assert config is not None
    return config


def target_answers(config: DecodeEvalConfig, prompts: list[str], tokens: int) -> list[Json]:
    """The target's greedy answers as token ids, from vLLM; made once, kept in SPECGATE_HOME."""
    asked = json.dumps([config.target_model, tokens, prompts])
    name = f"answers-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.json"
    kept = layout.home(os.environ) / "examples" / name
    if kept.exists():
        return list(records.read_json(kept)["answers"])
    plain = dataclasses.replace(config, engine_env=CPU_ENGINE)  # nothing trains yet: every core
    with serving.serve(plain, None, config.folder, 240.0) as server, ThreadPoolExecutor(32) as pool:

        def ask(prompt: str) -> Json:
            body = {"model": config.target_model, "max_tokens": tokens, "temperature": 0}
            body |= {"messages": [{"role": "user", "content": prompt}], "return_token_ids": True}
            reply = requests.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=240)
            reply.raise_for_status()
            said = reply.json()
            return {"prompt": said["prompt_token_ids"], "answer": said["choices"][0]["token_ids"]}

        answers = list(pool.map(ask, prompts))
    records.write_json(kept, {"answers": answers})
    return answers


@torch.no_grad()
def seen_by_head(target: torch.nn.Module, answer: Json) -> Row:
    ids = torch.tensor([*answer["prompt"], *answer["answer"]])
    states = target.model(ids[None], output_hidden_states=True).hidden_states
    layers = feature_layers(target.config.num_hidden_layers)
    embedded = target.get_input_embeddings()(functional.pad(ids, (0, N))).float()
    features = torch.cat([states[layer][0] for layer in layers], -1).float()
    return Row(ids, len(answer["prompt"]), embedded, features)


def new_head(target: torch.nn.Module, rows: list[Row]) -> Eagle3Head:
    """A head over the most frequent tokens; its MLP and lm_head start as the target's.

    fc and the attention's output start at zero. So before training nothing reaches lm_head, all
    logits are equal and every draft is the first token of the vocabulary, which no answer holds:
    none is accepted. Random ones would be right now and then, and step 0 read 1.003 by luck.
    """
    said = torch.cat([row.ids[row.start :] for row in rows])
    counts = torch.bincount(said, minlength=target.config.vocab_size)
    vocabulary = counts.argsort(descending=True, stable=True)[:DRAFT_VOCABULARY].sort().values
    own = {"architectures": [ARCHITECTURE], "num_hidden_layers": 1, "tie_word_embeddings": False}
    own |= {"draft_vocab_size": DRAFT_VOCABULARY, "dtype": "float32"}
    head = Eagle3Head({**target.config.to_dict(), **own}, vocabulary)
    head.midlayer.mlp.load_state_dict(target.model.layers[-1].mlp.state_dict())
    head.lm_head.weight.data.copy_(target.get_input_embeddings().weight[vocabulary])
    torch.nn.init.zeros_(head.fc.weight)
    torch.nn.init.zeros_(head.midlayer.self_attn.o_proj.weight)
    return head


@torch.autocast("cpu", dtype=torch.bfloat16)
def unroll(head: Eagle3Head, row: Row) -> tuple[Tensor, Tensor]:
    """Draft N tokens from every place of a text, as an engine will from one; loss and tau_sim.

    tau_sim: 1 + the mean number of drafts that are right up to the first wrong one.
    """
    rows = len(row.ids) - 2
    ids, places = functional.pad(row.ids, (0, N)), torch.arange(rows)
    draft_id = torch.full(head.t2d.shape, -1)
    draft_id[head.target_ids] = torch.arange(len(head.target_ids))
    hidden, past = head.fc(row.features[:rows]), Past()
    right, loss, length = places + 2 >= row.start, torch.tensor(0.0), torch.tensor(1.0)
    answered = right.sum()
    for step in range(N):
        hidden, logits = head(row.embedded[places + 1 + step], hidden, past)
        wanted = draft_id[ids[places + 2 + step]]
        inside = (places + 2 + step < len(row.ids)) & (places + 2 >= row.start)
        known = inside & (wanted >= 0)
        loss = loss + STEP_WEIGHT**step * functional.cross_entropy(logits[known], wanted[known])
        right = right & inside & (logits.argmax(-1) == wanted)
        length = length + right.sum() / answered
    return loss, length


def train(
    head: Eagle3Head, seen: list[Row], unseen: list[Row], args: argparse.Namespace, evals: Session
) -> None:
    """Learn text by text; what a kill leaves is gone on from."""
    optimizer = torch.optim.AdamW(head.parameters(), betas=(0.9, 0.95))
    done, total, checkpoint = 0, args.epochs * len(seen), args.output / "checkpoint.pt"
    if checkpoint.exists():
        done, of_head, of_optimizer = torch.load(checkpoint)
        head.load_state_dict(of_head)
        optimizer.load_state_dict(of_optimizer)
        logging.info(f"goes on from step {done}")
    tell(evals, done, head, unseen)
    while done < total:
        epoch, index = divmod(done, len(seen))
        order = torch.randperm(len(seen), generator=torch.Generator().manual_seed(epoch))
        loss, length = unroll(head, seen[order[index]])
        rate = 0.5 * (1 + math.cos(math.pi * done / total))
        done += 1
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * rate * min(1.0, done / WARM_UP_STEPS)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        if done % max(1, args.every // 4) == 0 or done == total:
            logging.info(f"step {done} of {total}: loss {loss:.3f}, tau_sim {length:.2f}")
            fresh = checkpoint.with_suffix(".new")
            torch.save((done, head.state_dict(), optimizer.state_dict()), fresh)
            fresh.replace(checkpoint)
        tell(evals, done, head, unseen)


@torch.no_grad()
def tell(evals: Session, step: int, head: Eagle3Head, unseen: list[Row]) -> None:
    """Tell decode eval of a step; where one is due, with the simulated length beside it."""
    tau_sim = None
    if evals.runner and evals.runner.due(step):
        # Any other training takes far longer than an eval; this one would outrun its own curve.
        evals.runner.wait(EVAL_TIMEOUT_S)
        tau_sim = float(sum(unroll(head, row)[1] for row in unseen) / len(unseen))
    evals.step(step, head, tau_sim=tau_sim)


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
