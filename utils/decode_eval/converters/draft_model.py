"""Plain draft models: small causal language models with the target's vocabulary."""

from __future__ import annotations

from utils.decode_eval.converters import Plan, Source, same_as_target
from utils.decode_eval.decoder_shapes import Shapes, layer, numbers
from utils.records import Json

# What each architecture's layers have beyond a Llama layer without biases.
ARCHITECTURES: dict[str, dict[str, bool]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {},
    "Qwen2ForCausalLM": {"qkv_bias": True},
    "Qwen3ForCausalLM": {"head_norms": True},
}


def matches(config: Json) -> bool:
    named = config.get("architectures") or []
    return len(named) == 1 and named[0] in ARCHITECTURES


def plan(source: Source, engine: str) -> Plan:  # noqa: ARG001 # the same for every engine
    config = source.config
    same_as_target(source, "vocab_size")
    size, vocabulary, layers = numbers(config, "hidden_size", "vocab_size", "num_hidden_layers")
    beyond = dict(ARCHITECTURES[config["architectures"][0]])
    if config.get("attention_bias"):
        beyond.update(qkv_bias=True, o_bias=True)
    wanted: Shapes = {
        "model.embed_tokens.weight": (vocabulary, size),
        "model.norm.weight": (size,),
    }
    for index in range(layers):
        wanted |= layer(f"model.layers.{index}", config, **beyond)
    head: Shapes = {"lm_head.weight": (vocabulary, size)}
    tied = bool(config.get("tie_word_embeddings"))
    names = {name: name for name in source.weights.tensors}
    return Plan(
        "draft_model",
        dict(config),
        names,
        wanted if tied else wanted | head,
        head if tied else {},
    )
