"""Write a one-layer EAGLE-3 head with random weights; the engine's Python runs this.

Usage: make_random_eagle3.py TARGET_DIR OUTPUT_DIR
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

DRAFT_VOCABULARY = 1024


def weights(config: dict[str, int]) -> dict[str, torch.Tensor]:
    """Tensor names and shapes of LlamaForCausalLMEagle3, bf16; d2t and t2d map the vocabularies."""
    hidden, heads, kv_heads = (
        config["hidden_size"],
        config["num_attention_heads"],
        config["num_key_value_heads"],
    )
    head = hidden // heads
    inner = config["intermediate_size"]
    shapes = {
        "fc.weight": (hidden, 3 * hidden),
        "midlayer.hidden_norm.weight": (hidden,),
        "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.post_attention_layernorm.weight": (hidden,),
        "midlayer.self_attn.q_proj.weight": (heads * head, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (kv_heads * head, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (kv_heads * head, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, heads * head),
        "midlayer.mlp.gate_proj.weight": (inner, hidden),
        "midlayer.mlp.up_proj.weight": (inner, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, inner),
        "norm.weight": (hidden,),
        "lm_head.weight": (DRAFT_VOCABULARY, hidden),
    }
    torch.manual_seed(0)
    tensors = {name: torch.randn(shape).bfloat16() * 0.02 for name, shape in shapes.items()}
    # The rarest ids of the vocabulary, so that not even luck accepts a token.
    ids = torch.arange(config["vocab_size"] - DRAFT_VOCABULARY, config["vocab_size"])
    known = torch.zeros(config["vocab_size"], dtype=torch.bool)
    known[ids] = True
    return {**tensors, "d2t": ids - torch.arange(DRAFT_VOCABULARY), "t2d": known}


def main(target: Path, output: Path) -> None:
    config = json.loads((target / "config.json").read_text())
    output.mkdir(parents=True)
    save_file(weights(config), output / "model.safetensors", metadata={"format": "pt"})
    draft = {
        **config,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": DRAFT_VOCABULARY,
        "tie_word_embeddings": False,
    }
    (output / "config.json").write_text(json.dumps(draft, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
