"""MTP heads that are trained apart from their target, which vLLM reads as method mtp.

The config.json is the target's own: vLLM tells from it which head belongs to it. An engine wants
the target's embeddings and output head among the tensors and then takes the target's own in their
place, so a head that has trained them apart would not be what is measured: it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from utils.decode_eval import decoder_shapes
from utils.decode_eval.converters import HEAD, INPUT, Plan, Source, same_as_target
from utils.decode_eval.decoder_shapes import Shapes, numbers
from utils.errors import UsageError
from utils.records import Json

NEXTN = "num_nextn_predict_layers"


@dataclass(frozen=True)
class Family:
    """How one architecture names its heads, as templates of tensor names.

    {i}: a head's number, from 0; {n}: the same counted on from the target's layers.
    count: field of config.json with the number of heads. layer: prefix of a head's decoder layer.
    own: its further tensors; their shapes in multiples of hidden_size. or_one: without `count`
    there is one head.
    """

    count: str
    layer: str
    own: Mapping[str, tuple[int, ...]]
    shapes: Callable[[str, Json], Shapes]
    embedding: str = "model.embed_tokens.weight"
    head: str = "lm_head.weight"
    or_one: bool = False


def _nextn(shapes: Callable[[str, Json], Shapes]) -> Family:
    """DeepSeek's names, which others took over."""
    layer = "model.layers.{n}"
    return Family(
        NEXTN,
        layer,
        {
            f"{layer}.enorm.weight": (1,),
            f"{layer}.hnorm.weight": (1,),
            f"{layer}.eh_proj.weight": (1, 2),
            f"{layer}.shared_head.norm.weight": (1,),
        },
        shapes,
        f"{layer}.embed_tokens.weight",
        f"{layer}.shared_head.head.weight",
    )


def _qwen(count: str, shapes: Callable[[str, Json], Shapes]) -> Family:
    own: dict[str, tuple[int, ...]] = {
        "mtp.fc.weight": (1, 2),
        "mtp.norm.weight": (1,),
        "mtp.pre_fc_norm_hidden.weight": (1,),
        "mtp.pre_fc_norm_embedding.weight": (1,),
    }
    return Family(count, "mtp.layers.{i}", own, shapes, or_one=True)


FAMILIES = {
    "MiMoForCausalLM": Family(
        NEXTN,
        "model.mtp_layers.{i}",
        {
            "model.mtp_layers.{i}.input_proj.weight": (1, 2),
            "model.mtp_layers.{i}.token_layernorm.weight": (1,),
            "model.mtp_layers.{i}.hidden_layernorm.weight": (1,),
            "model.mtp_layers.{i}.final_layernorm.weight": (1,),
        },
        lambda prefix, config: decoder_shapes.layer(prefix, config, qkv_bias=True),
    ),
    "DeepseekV3ForCausalLM": _nextn(decoder_shapes.deepseek_layer),
    "Qwen3_5ForCausalLM": _qwen(
        "mtp_num_hidden_layers",
        lambda prefix, config: decoder_shapes.layer(prefix, config, gated=True, head_norms=True),
    ),
    "Qwen3NextForCausalLM": _qwen(NEXTN, decoder_shapes.qwen_moe_layer),
    "Ernie4_5_MoeForCausalLM": Family(
        NEXTN,
        "model.mtp_block.{i}",
        {
            "model.mtp_linear_proj.{i}.weight": (1, 2),
            "model.mtp_emb_norm.{i}.weight": (1,),
            "model.mtp_hidden_norm.{i}.weight": (1,),
        },
        decoder_shapes.layer,
    ),
}


def matches(config: Json) -> bool:
    named = config.get("architectures") or []
    return len(named) == 1 and named[0] in FAMILIES


def plan(source: Source, engine: str) -> Plan:
    config = source.config
    (architecture,) = config["architectures"]
    if engine != "vllm":
        raise UsageError(f"MTP heads of {architecture} have no converter for {engine}; vLLM has")
    same_as_target(source, "architectures", "vocab_size", "hidden_size", "num_hidden_layers")
    family = FAMILIES[architecture]
    size, vocabulary, layers = numbers(config, "hidden_size", "vocab_size", "num_hidden_layers")
    (heads,) = numbers({family.count: 1, **config} if family.or_one else config, family.count)
    wanted: Shapes = {}
    shared: dict[str, str] = {}
    for i in range(heads):
        at = {"i": i, "n": layers + i}
        wanted |= family.shapes(family.layer.format(**at), config)
        for name, multiples in family.own.items():
            wanted[name.format(**at)] = tuple(size * factor for factor in multiples)
        shared[family.embedding.format(**at)] = INPUT
        if not config.get("tie_word_embeddings"):
            shared[family.head.format(**at)] = HEAD
    wanted |= dict.fromkeys(shared, (vocabulary, size))
    names = {name: name for name in source.weights.tensors}
    return Plan("mtp", dict(config), names, wanted, shared=shared)
