"""MTP heads that are trained apart from their target: MiMo's, which vLLM reads as method mtp.

The config.json is the target's own: vLLM tells from it which head belongs to it.
"""

from __future__ import annotations

from utils.decode_eval.converters import Plan, Source, same_as_target
from utils.decode_eval.decoder_shapes import Shapes, layer, numbers
from utils.errors import UsageError
from utils.records import Json

ARCHITECTURE = "MiMoForCausalLM"


def matches(config: Json) -> bool:
    return config.get("architectures") == [ARCHITECTURE]


def plan(source: Source, engine: str) -> Plan:
    if engine != "vllm":
        raise UsageError(f"MiMo's MTP head has no converter for {engine}; vLLM reads it")
    config = source.config
    same_as_target(source, "vocab_size", "hidden_size")
    size, vocabulary, heads = numbers(
        config, "hidden_size", "vocab_size", "num_nextn_predict_layers"
    )
    wanted: Shapes = {
        "model.embed_tokens.weight": (vocabulary, size),
        "lm_head.weight": (vocabulary, size),
    }
    for index in range(heads):
        prefix = f"model.mtp_layers.{index}"
        wanted |= layer(prefix, config, qkv_bias=True)
        wanted[f"{prefix}.input_proj.weight"] = (size, 2 * size)
        for norm in ("token_layernorm", "hidden_layernorm", "final_layernorm"):
            wanted[f"{prefix}.{norm}.weight"] = (size,)
    names = {name: name for name in source.weights.tensors}
    return Plan("mtp", dict(config), names, wanted)
