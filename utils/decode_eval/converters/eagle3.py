"""EAGLE-3 heads of one Llama-type layer: vLLM's and SGLang's `LlamaForCausalLMEagle3`."""

from __future__ import annotations

from collections.abc import Collection

from utils.decode_eval.converters import Plan, Source, same_as_target
from utils.decode_eval.decoder_shapes import Shapes, layer, numbers
from utils.errors import UsageError
from utils.records import Json

ARCHITECTURE = "LlamaForCausalLMEagle3"
# Other names under which trainers save the same tensors; what is inside is checked all the same.
NAMES = (ARCHITECTURE, "Eagle3LlamaForCausalLM", "LlamaEagle3DraftModel")
PREFIX = "model."
LAYERS = ("midlayer", "layers.0")


def matches(config: Json) -> bool:
    named = config.get("architectures") or []
    return "speculators_model_type" not in config and len(named) == 1 and named[0] in NAMES


def plan(source: Source, engine: str) -> Plan:
    config = source.config
    if config.get("parallel_drafting"):
        raise UsageError("config.json: parallel_drafting (P-EAGLE) has no converter yet")
    if engine == "sglang" and config.get("attention_bias"):
        raise UsageError("config.json: attention_bias: SGLang's EAGLE-3 layer has no biases")
    same_as_target(source, "vocab_size")
    check_vocabulary(source, config)
    names = {name: name.removeprefix(PREFIX) for name in source.weights.tensors}
    wanted, optional = shapes(config, set(names.values()))
    # A head has an lm_head of its own, over its own vocabulary, whatever its target does.
    written = {**config, "architectures": [ARCHITECTURE], "tie_word_embeddings": False}
    return Plan("eagle3", written, names, wanted, optional)


def shapes(config: Json, names: Collection[str]) -> tuple[Shapes, Shapes]:
    """What the engine wants, and what it can do without; names: what is there, for its spelling."""
    size, vocabulary, layers = numbers(config, "hidden_size", "vocab_size", "num_hidden_layers")
    if layers != 1:
        raise UsageError(f"config.json: num_hidden_layers is {layers}; an EAGLE-3 head has 1")
    drafts = config.get("draft_vocab_size") or vocabulary
    seen = config.get("target_hidden_size") or size
    features = _features(config)
    own = [prefix for prefix in LAYERS if any(n.startswith(f"{prefix}.") for n in names)]
    prefix = own[0] if own else LAYERS[0]
    bias = bool(config.get("attention_bias"))
    wanted = layer(prefix, config, wide=2, qkv_bias=bias, o_bias=bias)
    wanted |= {
        f"{prefix}.hidden_norm.weight": (size,),
        "fc.weight": (size, features * seen),
        "norm.weight": (size,),
    }
    if config.get("norm_before_fc"):
        wanted["input_norm.weight"] = (features * seen,)
    if config.get("fc_norm"):
        wanted |= {f"fc_norm.{index}.weight": (seen,) for index in range(features)}
    optional: Shapes = {"embed_tokens.weight": (vocabulary, size), "t2d": (vocabulary,)}
    # Over the whole vocabulary the target's own lm_head can serve.
    own_head = optional if drafts == vocabulary else wanted
    own_head |= {"lm_head.weight": (drafts, size), "d2t": (drafts,)}
    return wanted, optional


def check_vocabulary(source: Source, config: Json) -> None:
    """d2t holds offsets to ids of the target, and t2d marks the same ids.

    Raises:
        UsageError: ids instead of offsets, ids out of range or twice, or a t2d that disagrees.
    """
    tensors = {name.removeprefix(PREFIX): name for name in source.weights.tensors}
    if "d2t" not in tensors:
        return
    offsets = source.weights.integers(tensors["d2t"])
    ids = [index + offset for index, offset in enumerate(offsets)]
    known = set(ids)
    where = f"{source.weights.path}: d2t"
    if len(known) != len(ids) or not all(0 <= i < config["vocab_size"] for i in ids):
        raise UsageError(
            f"{where} must hold, for each draft token, its id in the target less its own index; "
            "these repeat or lie outside the vocabulary (are they the ids themselves?)"
        )
    if "t2d" in tensors:
        marked = {i for i, on in enumerate(source.weights.integers(tensors["t2d"])) if on}
        if marked != known:
            raise UsageError(
                f"{where} and t2d disagree: {len(known - marked)} ids are in d2t alone, "
                f"{len(marked - known)} in t2d alone"
            )


def _features(config: Json) -> int:
    """How many of the target's hidden states are fed in."""
    layers = (config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    return int(config.get("num_aux_hidden_states") or len(layers or "123"))
