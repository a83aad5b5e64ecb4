"""EAGLE-3 heads in the `speculators` library's format, which vLLM reads as it is.

What vLLM 0.32 asks of the config.json is checked here before an engine is started for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from utils.decode_eval.converters import Plan, Source, eagle3, same_as_target
from utils.errors import UsageError
from utils.records import Json


def matches(config: Json) -> bool:
    return "speculators_model_type" in config


def plan(source: Source, engine: str) -> Plan:
    config = source.config
    if engine != "vllm":
        raise UsageError(f"{engine} doesn't read the speculators format; vLLM does")
    layer = config.get("transformer_layer_config")
    kind = config["speculators_model_type"]
    if kind != "eagle3" or not isinstance(layer, dict) or layer.get("model_type") != "llama":
        inner = layer.get("model_type") if isinstance(layer, dict) else None
        raise UsageError(
            f"config.json: speculators_model_type {kind!r} with layers of type {inner!r} has no "
            "converter; eagle3 with llama has"
        )
    _check_proposal(config)
    flat = {**layer, **config, "num_hidden_layers": layer.get("num_hidden_layers", 1)}
    same_as_target(replace(source, config=flat), "vocab_size")
    eagle3.check_vocabulary(source, flat)
    names = {name: name for name in source.weights.tensors}
    wanted, optional = eagle3.shapes(flat, names)
    return Plan("eagle3", dict(config), names, wanted, optional)


def _check_proposal(config: Json) -> None:
    """speculators_config, without which vLLM doesn't know the format."""
    found: Any = config.get("speculators_config")
    try:
        number = found["proposal_methods"][0]["speculative_tokens"]
        verifier = found["verifier"]["name_or_path"]
    except (KeyError, IndexError, TypeError) as error:
        raise UsageError(
            "config.json: speculators_config lacks proposal_methods[0].speculative_tokens or "
            f"verifier.name_or_path ({error!r})"
        ) from error
    if type(number) is not int or not verifier:
        raise UsageError(f"config.json: {number!r} speculative tokens for verifier {verifier!r}")
