"""EAGLE-3 heads of one Llama-type layer: vLLM's and SGLang's `LlamaForCausalLMEagle3`.

With `parallel_drafting` P-EAGLE, of one or several layers, which drafts all tokens at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from utils.decode_eval.converters import HEAD, INPUT, Plan, Source, same_as_target
from utils.decode_eval.decoder_shapes import Shapes, layer, numbers
from utils.errors import UsageError
from utils.records import Json

ARCHITECTURE = "LlamaForCausalLMEagle3"
# Other names under which trainers save the same tensors; what is inside is checked all the same.
NAMES = (ARCHITECTURE, "Eagle3LlamaForCausalLM", "LlamaEagle3DraftModel")
PREFIX = "model."
LAYERS = ("midlayer", "layers.0")
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
# P-EAGLE: what stands for the hidden state and for the token of a place that isn't drafted yet.
MASK, MASK_TOKENS = "mask_hidden", ("mask_token_id", "pard_token", "ptd_token_id")
NOT_IN_SGLANG = ("attention_bias", "norm_before_residual", "parallel_drafting")


def matches(config: Json) -> bool:
    named = config.get("architectures") or []
    return "speculators_model_type" not in config and len(named) == 1 and named[0] in NAMES


def plan(source: Source, engine: str) -> Plan:
    config = source.config
    if engine == "sglang" and (other := [name for name in NOT_IN_SGLANG if config.get(name)]):
        raise UsageError(f"config.json: {', '.join(other)}: SGLang's EAGLE-3 layer has none of it")
    same_as_target(source, "vocab_size")
    check_vocabulary(source, config)
    names = {name: name.removeprefix(PREFIX) for name in source.weights.tensors}
    wanted, optional = shapes(config, set(names.values()))
    if MASK in wanted:
        wanted[MASK] = _as_it_is(source, names, wanted[MASK])
    shared = {}
    if engine == "sglang" and config.get("target_hidden_size") in (None, config["hidden_size"]):
        shared[INPUT] = INPUT
    written = {
        **config,
        "architectures": [ARCHITECTURE],
        # A head has an lm_head of its own, over its own vocabulary, whatever its target does.
        "tie_word_embeddings": False,
        **_layers_for(config, engine),
    }
    if engine == "sglang":
        written["draft_vocab_size"] = _rows(source, names)
    parallel = {"parallel_drafting": "true"} if config.get("parallel_drafting") else {}
    if parallel and not any(type(config.get(name)) is int for name in MASK_TOKENS):
        raise UsageError(f"config.json: parallel_drafting needs {' or '.join(MASK_TOKENS)}, an id")
    return Plan("eagle3", written, names, wanted, optional, parallel, shared)


def _as_it_is(source: Source, names: Mapping[str, str], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what stands for a hidden state: vLLM takes any of the right size."""
    found = [source.weights.tensors[old].shape for old, new in names.items() if new == MASK]
    return found[0] if found and math.prod(found[0]) == math.prod(shape) else shape


def _layers_for(config: Json, engine: str) -> Json:
    """Whose hidden states are fed in, as the engine counts: the two are one apart."""
    layers = fed_layers(config)
    if layers is None:
        return {}
    nested = {k: v for k, v in (config.get("eagle_config") or {}).items() if k != LAYER_IDS}
    if engine == "sglang":
        nested[LAYER_IDS] = [layer - 1 for layer in layers]
    return {
        LAYER_IDS: None if engine == "sglang" else layers,
        "eagle_config": nested,
        "num_aux_hidden_states": len(layers),
    }


def fed_layers(config: Json) -> list[int] | None:
    """The target's layers whose inputs the head sees; None: the default, which is one for all.

    config.json has them as they are, or in eagle_config as the layers whose outputs they are.

    Raises:
        UsageError: it has both, and they differ.
    """
    outputs = (config.get("eagle_config") or {}).get(LAYER_IDS)
    of_outputs = [layer + 1 for layer in outputs] if outputs else None
    inputs = config.get(LAYER_IDS) or of_outputs
    if of_outputs and inputs != of_outputs:
        raise UsageError(
            f"config.json: {LAYER_IDS} {inputs} are layers whose inputs the head sees, those of "
            f"eagle_config, {outputs}, whose outputs; want them one apart, or one of the two"
        )
    return list(inputs) if inputs else None


def _rows(source: Source, names: Mapping[str, str]) -> int | None:
    """Of the head's own lm_head; without one, and only with None, SGLang takes the target's."""
    heads = [source.weights.tensors[old] for old, new in names.items() if new == HEAD]
    return heads[0].shape[0] if heads else None


def shapes(config: Json, names: Collection[str]) -> tuple[Shapes, Shapes]:
    """What the engine wants, and what it can do without; names: what is there, for its spelling."""
    size, layers = numbers(config, "hidden_size", "num_hidden_layers")
    nested = config.get("eagle_config") or {}
    parallel = bool(config.get("parallel_drafting"))
    if layers != 1 and not parallel:
        raise UsageError(f"config.json: num_hidden_layers is {layers}; an EAGLE-3 head has 1")
    if nested.get("use_aux_hidden_state") is False:
        raise UsageError("config.json: without use_aux_hidden_state fc would not be used")
    seen = config.get("target_hidden_size") or size
    fed = int(config.get("num_aux_hidden_states") or len(fed_layers(config) or "123"))
    own = [prefix for prefix in LAYERS if any(n.startswith(f"{prefix}.") for n in names)]
    prefix = own[0] if own else LAYERS[0]
    bias = bool(config.get("attention_bias"))
    wanted: Shapes = {"fc.weight": (size, fed * seen), "norm.weight": (size,)}
    for index in range(layers):
        one = prefix if index == 0 else f"layers.{index}"
        # The embedding stands beside the hidden state in the first alone.
        wanted |= layer(one, config, wide=1 if index else 2, qkv_bias=bias, o_bias=bias)
        wanted[f"{one}.hidden_norm.weight"] = (size,)
    if parallel:
        wanted[MASK] = (1, fed * seen)
    if nested.get("norm_before_fc", config.get("norm_before_fc")):
        wanted["input_norm.weight"] = (fed * seen,)
    if config.get("fc_norm"):
        wanted |= {f"fc_norm.{index}.weight": (seen,) for index in range(fed)}
    required, optional = vocabulary_shapes(config)
    return wanted | required, optional


def vocabulary_shapes(config: Json) -> tuple[Shapes, Shapes]:
    """Embedding, output head and their vocabularies: what is wanted, what the target can give."""
    size, vocabulary = numbers(config, "hidden_size", "vocab_size")
    drafts = config.get("draft_vocab_size") or vocabulary
    like_the_target = config.get("target_hidden_size") in (None, size)
    wanted: Shapes = {}
    optional: Shapes = {"t2d": (vocabulary,)}
    (optional if like_the_target else wanted)[INPUT] = (vocabulary, size)
    whole = drafts == vocabulary
    (optional if whole and like_the_target else wanted)[HEAD] = (drafts, size)
    (optional if whole else wanted)["d2t"] = (drafts,)
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
