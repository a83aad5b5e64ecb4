"""Write a model that counts, and a drafter for it that stumbles; SGLang's Python runs this.

Usage: make_counting.py SOURCE_DIR OUTPUT_DIR STUMBLES_FROM STRIDE

After a line break, which ends every chat prompt, the model says the token FIRST, and after each
token the one with the next id, by a wide margin. It has no attention, so it can't matter that
SGLang's standalone drafter never sees a prompt's first token. The drafter is the same, but what
it says after the tokens FIRST + STUMBLES_FROM, + STRIDE, + 2 STRIDE … is wrong. So the outcome
of every verify step is known beforehand, on any machine. The tokenizer is that of SOURCE_DIR.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

FIRST = 1000
WIDTH = 128


def weights(vocabulary: int, line_break: int) -> dict[str, torch.Tensor]:
    """One layer that adds nothing; the token most like a token's own direction follows it."""
    torch.manual_seed(0)
    embedding = torch.nn.functional.normalize(torch.randn(vocabulary, WIDTH))
    head = embedding.roll(1, 0)
    head[FIRST] = embedding[line_break]
    head[line_break + 1] = 0
    layer, square = "model.layers.0.", torch.zeros(WIDTH, WIDTH)
    projections = [f"self_attn.{name}_proj" for name in "qkvo"]
    projections += [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    norms = ["model.norm", f"{layer}input_layernorm", f"{layer}post_attention_layernorm"]
    return {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head,
        **{f"{layer}{name}.weight": square.clone() for name in projections},
        **{f"{name}.weight": torch.ones(WIDTH) for name in norms},
    }


def save(tensors: dict[str, torch.Tensor], source: Path, output: Path) -> None:
    shutil.copytree(source, output, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    tensors = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    save_file(tensors, output / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text()) | {
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "head_dim": WIDTH // 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
    }
    (output / "config.json").write_text(json.dumps(config, indent=2))


def main(source: Path, output: Path, stumbles_from: int, stride: int) -> None:
    vocabulary = json.loads((source / "config.json").read_text())["vocab_size"]
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    tensors = weights(vocabulary, tokenizer["model"]["vocab"]["Ċ"])
    save(tensors, source, output / "target")
    tensors["lm_head.weight"][FIRST + stumbles_from + 1 :: stride] = 0
    save(tensors, source, output / "drafter")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
