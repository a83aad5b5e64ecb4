"""A recipe's `speculate <method> <N> [key=value...]` → the engine's own arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from utils.errors import UsageError

METHODS = ("mtp", "eagle", "eagle3", "draft_model", "ngram", "dspark", "dflash")
NEEDS_DRAFT = ("eagle", "eagle3", "draft_model", "dflash")

_Kind = type[str] | type[int] | type[bool]
_Keys = Mapping[str, _Kind]
_VLLM_KEYS: _Keys = {
    "draft_model": str,
    "draft_sample_method": str,
    "rejection_sample_method": str,
    "draft_tensor_parallel_size": int,
    "parallel_drafting": bool,
    "prompt_lookup_min": int,
    "prompt_lookup_max": int,
    "attention_backend": str,
    "moe_backend": str,
    "quantization": str,
    "kv_cache_dtype": str,
    "max_model_len": int,
    "revision": str,
}
_SGLANG_ALGORITHMS = {
    "mtp": "EAGLE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "draft_model": "STANDALONE",
    "ngram": "NGRAM",
    "dspark": "DSPARK",
}
_KEYS: dict[str, _Keys] = {"vllm": _VLLM_KEYS, "sglang": {"draft_model": str}}
_CHOICES = {
    "draft_sample_method": ("greedy", "probabilistic"),
    # "synthetic" would make up the number that this project measures
    "rejection_sample_method": ("standard", "block"),
}


@dataclass(frozen=True)
class Speculation:
    """One method with its draft length N and further keys, all checked."""

    engine: str
    method: str
    num_tokens: int
    keys: Mapping[str, str | int]

    def text(self, key: str) -> str | None:
        """A key as the plan records it, None when the recipe leaves it to the engine."""
        value = self.keys.get(key)
        return None if value is None else str(value)

    def arguments(self, forced: Mapping[str, str | float] | None = None) -> list[str]:
        """The engine's words; forced are keys that vLLM takes for synthetic acceptance."""
        return self._sglang() if self.engine == "sglang" else self._vllm(forced or {})

    def _vllm(self, forced: Mapping[str, str | float]) -> list[str]:
        config: dict[str, str | float] = {**self.keys, **forced}
        if "draft_model" in config:
            config["model"] = config.pop("draft_model")
        config.update(method=self.method, num_speculative_tokens=self.num_tokens)
        return ["--speculative-config", json.dumps(config, sort_keys=True)]

    def _sglang(self) -> list[str]:
        options: dict[str, str | int] = {"algorithm": _SGLANG_ALGORITHMS[self.method]}
        if "draft_model" in self.keys:
            options["draft-model-path"] = self.keys["draft_model"]
        if self.method == "dspark":  # fixes its steps itself; the block is N
            options["dspark-block-size"] = self.num_tokens
        else:
            if self.method != "ngram":  # has neither steps nor beams
                options.update({"num-steps": self.num_tokens, "eagle-topk": 1})
            options["num-draft-tokens"] = self.num_tokens + 1  # the bonus row counts
        return [text for name, value in options.items() for text in _option(name, value)]


def _option(name: str, value: str | int) -> tuple[str, str]:
    return f"--speculative-{name}", str(value)


def parse(engine: str, method: str, num_tokens: str, pairs: Sequence[str]) -> Speculation:
    """Check what a recipe said.

    Raises:
        UsageError: unknown engine, method, key or value, an N below 1, or a draft model that is
            missing or has no use.
    """
    known = _KEYS.get(engine)
    if known is None:
        raise UsageError(f"speculate: no engine {engine!r}; {_near(engine, _KEYS)}")
    methods = METHODS if engine == "vllm" else tuple(_SGLANG_ALGORITHMS)
    if method not in methods:
        raise UsageError(f"speculate: unknown method {method!r}; {_near(method, methods)}")
    keys: dict[str, str | int] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        name = "draft_model" if name == "model" else name
        if name not in known:
            raise UsageError(f"speculate: {engine} has no key {name!r}; {_near(name, known)}")
        if name in keys:
            raise UsageError(f"speculate: key {name} is given twice")
        keys[name] = _value(name, text, known[name])
    if method in NEEDS_DRAFT and "draft_model" not in keys:
        raise UsageError(f"speculate: method {method} needs draft_model=<path or id>")
    if method == "ngram" and "draft_model" in keys:
        raise UsageError("speculate: ngram has no draft model; remove draft_model=")
    return Speculation(engine, method, int(_value("N", num_tokens, int)), keys)


def _value(name: str, text: str, kind: _Kind) -> str | int:
    if kind is bool:
        if text not in ("true", "false"):
            raise UsageError(f"speculate: {name} is {text!r}, want true or false")
        return text == "true"
    if kind is int and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"speculate: {name} is {text!r}, want a whole number above 0")
    if not text or not text.isprintable():
        raise UsageError(f"speculate: {name} is {text!r}, want printable text")
    choices = _CHOICES.get(name, (text,))
    if text not in choices:
        raise UsageError(f"speculate: {name} is {text!r}; {_near(text, choices)}")
    return kind(text)


def _near(name: str, known: Mapping[str, object] | Sequence[str]) -> str:
    from utils import models  # only for the message: keeps the good case quick

    return models.near(name, known)
