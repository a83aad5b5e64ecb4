"""What the decode benches run in the engine's Python: training pinned to one core, evals apart.

Usage: decode_trainer.py export | training FOLDER TARGET; prints one JSON object.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import json
import os
import tempfile
import threading
import time
from statistics import median
from typing import Any

import torch
from safetensors.torch import save_file

from utils.decode_eval import DecodeEvalRunner, resolve_decode_eval_config, snapshot
from utils.decode_eval.eagle3_head import ARCHITECTURE, Eagle3Head, Past

TIMES = 7
ROWS = 64
N = 3


def export() -> dict[str, float]:
    """Medians of export and of safetensors' own save, in turn, of half a gigabyte in bf16."""
    model = torch.nn.Module()
    model.config = {"architectures": ["Anything"]}
    for index in range(4):
        tensor = torch.randn(64, 1024, 1024).bfloat16()
        model.register_parameter(f"p{index}", torch.nn.Parameter(tensor))
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    ours, peer = [], []
    for _ in range(TIMES + 1):
        with tempfile.TemporaryDirectory() as folder:  # a step's snapshot is a new file
            began = time.perf_counter()
            snapshot.export_draft_snapshot(model, Path(folder))
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            save_file(state, Path(folder) / "peer.safetensors", metadata={"format": "pt"})
            peer.append(time.perf_counter() - began)
    return {"ours": median(ours[1:]), "peer": median(peer[1:])}  # the first is a warm-up


class Training(threading.Thread):
    """A loop of equal optimizer steps on one core; its seconds, with the time each began."""

    def __init__(self, head: Eagle3Head, core: int) -> None:
        super().__init__(daemon=True)
        self.head, self.core = head, core
        self.steps: list[tuple[float, float]] = []
        self.over = False

    def run(self) -> None:
        os.sched_setaffinity(0, {self.core})  # of this thread alone
        torch.set_num_threads(1)
        optimizer = torch.optim.SGD(self.head.parameters(), lr=1e-4)
        features, embedded = torch.randn(ROWS, 3 * 576), torch.randn(ROWS, 576)
        while not self.over:
            began = time.perf_counter()
            _, logits = self.head(embedded, self.head.fc(features), Past())
            optimizer.zero_grad()
            logits.square().mean().backward()
            optimizer.step()
            self.steps.append((began, time.perf_counter() - began))

    def between(self, first: float, last: float) -> float:
        """Median seconds of the steps that began in an interval."""
        return median(s for began, s in self.steps if first <= began <= last)


def training(folder: Path, target: str) -> dict[str, Any]:
    """Steps before, while and after an eval runs on the other core, and how long the eval took."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})  # what this thread starts inherits it
    head = new_head(target)
    runner = DecodeEvalRunner(config(folder, target, cores[-1]))
    trained = Training(head, cores[0])
    trained.start()
    time.sleep(15)
    launched = time.perf_counter()
    runner.launch_model(0, head)
    exported = time.perf_counter()
    rows: list[Any] = []
    while not rows:
        rows = runner.collect()
        time.sleep(0.05)
    ended = time.perf_counter()
    time.sleep(15)
    trained.over = True
    trained.join()
    (row,) = rows
    if row["outcome"] != "measured":
        raise RuntimeError(row["error"])
    alone = [s for b, s in trained.steps if b < launched or b > ended]
    return {
        "alone_s": median(alone),
        "beside_s": trained.between(exported, ended),
        "launch_to_result_s": ended - launched,
        "boot_and_tokens_s": row["seconds"]["boot"] + row["seconds"]["decode"],
        "seconds": row["seconds"],
        "acceptance_length": row["acceptance_length"],
    }


def new_head(target: str) -> Eagle3Head:
    found = json.loads((Path(target) / "config.json").read_text())
    own = {"architectures": [ARCHITECTURE], "num_hidden_layers": 1, "draft_vocab_size": 2048}
    return Eagle3Head({**found, **own})


def config(folder: Path, target: str, core: int) -> Any:
    prompts = folder / "prompts.jsonl"
    texts = [f"Write a Python function number {i}." for i in range(16)]
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    block = {
        "every_steps": 1,
        "target_model": target,
        "output_dir": str(folder / "run"),
        "num_speculative_tokens": N,
        "cuda_visible_devices": "cpu",
        "engine_python": sys.executable,
        "engine_args": ["--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "16"],
        "engine_env": {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": str(core),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        },
        "input_data": str(prompts),
        "prompt_column": "prompt",
        "num_prompts": 16,
        "max_new_tokens": 64,
        "timeout_s": 300,
    }
    return resolve_decode_eval_config(block, training_devices=())


if __name__ == "__main__":
    found = export() if sys.argv[1] == "export" else training(Path(sys.argv[2]), sys.argv[3])
    print(json.dumps(found))
