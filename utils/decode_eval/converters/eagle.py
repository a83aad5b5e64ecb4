"""EAGLE-1 heads of Llama-type layers, without a norm and an output head of their own."""

from __future__ import annotations

from utils.decode_eval.converters import INPUT, Plan, Source, same_as_target
from utils.decode_eval.decoder_shapes import Shapes, layer, numbers
from utils.records import Json

# The names by which vLLM and SGLang know the same head.
WRITTEN = {"vllm": "EagleLlamaForCausalLM", "sglang": "LlamaForCausalLMEagle"}
PREFIX = "model."


def matches(config: Json) -> bool:
    named = config.get("architectures") or []
    return len(named) == 1 and named[0] in WRITTEN.values()


def plan(source: Source, engine: str) -> Plan:
    config = source.config
    same_as_target(source, "vocab_size", "hidden_size")
    size, vocabulary, layers = numbers(config, "hidden_size", "vocab_size", "num_hidden_layers")
    wanted: Shapes = {"fc.weight": (size, 2 * size)}
    bias = bool(config.get("attention_bias"))
    for index in range(layers):
        wanted |= layer(f"layers.{index}", config, qkv_bias=bias, o_bias=bias)
    # The first layer's input is the output of fc, which no norm precedes.
    del wanted["layers.0.input_layernorm.weight"]
    shared = {}
    if engine == "sglang":  # its fc has a bias, its embedding is always the target's
        wanted["fc.bias"] = (size,)
        shared["embed_tokens.weight"] = INPUT
    names = {name: name.removeprefix(PREFIX) for name in source.weights.tensors}
    written = {**config, "architectures": [WRITTEN[engine]], "tie_word_embeddings": False}
    optional: Shapes = {"embed_tokens.weight": (vocabulary, size)}
    return Plan("eagle", written, names, wanted, optional, shared=shared)
