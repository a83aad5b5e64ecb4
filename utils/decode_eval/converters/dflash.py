"""DFlash drafts: layers of Qwen3's type that draft a block of tokens at once."""

from __future__ import annotations

from utils.decode_eval.converters import Plan, Source, eagle3, same_as_target
from utils.decode_eval.decoder_shapes import Shapes, layer, numbers
from utils.errors import UsageError
from utils.records import Json

ARCHITECTURE = "DFlashDraftModel"
NAMES = (ARCHITECTURE, "Qwen3DFlashDraftModel")


def matches(config: Json) -> bool:
    named = config.get("architectures") or []
    return "speculators_model_type" not in config and len(named) == 1 and named[0] in NAMES


def plan(source: Source, engine: str) -> Plan:
    config = source.config
    if engine != "vllm":
        raise UsageError(f"DFlash drafts have no converter for {engine}; vLLM reads them")
    same_as_target(source, "vocab_size")
    eagle3.check_vocabulary(source, config)
    size, layers = numbers(config, "hidden_size", "num_hidden_layers")
    own = config.get("dflash_config") or {}
    numbers(own, "mask_token_id")
    fed = own.get("target_layer_ids")
    if not fed or own.get("attention_sink_bias") or config.get("add_swa_attention_sink_bias"):
        raise UsageError(
            "config.json: dflash_config must name target_layer_ids, and sink biases have no "
            "converter"
        )
    bias = bool(config.get("attention_bias"))
    wanted: Shapes = {
        "fc.weight": (size, len(fed) * (config.get("target_hidden_size") or size)),
        "hidden_norm.weight": (size,),
        "norm.weight": (size,),
    }
    for index in range(layers):
        wanted |= layer(f"layers.{index}", config, qkv_bias=bias, o_bias=bias, head_norms=True)
    names = {name: name.removeprefix(eagle3.PREFIX) for name in source.weights.tensors}
    required, optional = eagle3.vocabulary_shapes(config)
    return Plan(
        "dflash", {**config, "architectures": [ARCHITECTURE]}, names, wanted | required, optional
    )
