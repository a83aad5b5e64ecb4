"""A recipe's `speculate <method> <N> [key=value...]` → the engine's own arguments."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from utils import errors
from utils.errors import UsageError

METHODS = ("mtp", "eagle", "eagle3", "draft_model", "ngram", "dspark")
NEEDS_DRAFT = ("eagle", "eagle3", "draft_model")

_Keys = Mapping[str, type[str] | type[int]]
_VLLM_KEYS: _Keys = {
    "draft_model": str,
    "draft_sample_method": str,
    "rejection_sample_method": str,
    "draft_tensor_parallel_size": int,
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
    if method not in METHODS:
        raise UsageError(f"speculate: unknown method {method!r}; {_near(method, METHODS)}")
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


def _value(name: str, text: str, kind: type[str] | type[int]) -> str | int:
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


def arguments(argv: Sequence[str] | None = None) -> list[str]:
    """The engine's arguments, from the command line of this module."""
    return from_words(argv).arguments()


def from_words(argv: Sequence[str] | None = None) -> Speculation:
    """What a recipe said, from the command line of this module.

    Raises:
        UsageError: as `parse`, or the caller's label says another method.
    """
    parser = argparse.ArgumentParser(prog="utils.recipes.speculation", description=__doc__)
    parser.add_argument("--engine", required=True, help="vllm or sglang")
    parser.add_argument("--method", required=True)
    parser.add_argument("--num", required=True, help="draft length N")
    parser.add_argument("--label", default="", help="SPEC_DECODING as the caller set it")
    parser.add_argument("keys", nargs="*", metavar="key=value")
    options = parser.parse_args(argv)
    found = parse(options.engine, options.method, options.num, options.keys)
    if options.label not in ("", found.method):
        raise UsageError(
            f"SPEC_DECODING is {options.label!r}, but this recipe speculates with {found.method!r};"
            " unset it, the recipe says which"
        )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    found, forced = from_words(argv), None
    if os.environ.get("SYNTHETIC_ACCEPTANCE") == "true":
        from utils.golden import export  # only a throughput run needs it

        forced = export.of_recipe(found, os.environ).config
    sys.stdout.write("".join(f"{word}\0" for word in found.arguments(forced)))
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
