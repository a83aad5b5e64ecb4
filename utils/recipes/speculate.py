"""What a recipe's `speculate` comes to: the engine's arguments, or its environment."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from utils import errors
from utils.errors import UsageError
from utils.golden import export, registry
from utils.golden.export import Forced
from utils.golden.registry import DRAFTER
from utils.recipes.speculation import Speculation, parse


def main(argv: Sequence[str] | None = None) -> int:
    """Print words for the engine, or NAME=value with --environment; NUL-terminated."""
    options = _parser().parse_args(argv)
    said = _checked(options)
    forced = None
    if os.environ.get("SYNTHETIC_ACCEPTANCE") == "true":
        forced = synthetic(said, os.environ)
    if options.environment:
        words = [f"{name}={value}" for name, value in forced.environment.items()] if forced else []
    else:
        words = said.arguments(forced.config if forced else None)
    sys.stdout.write("".join(f"{word}\0" for word in words))
    return errors.PASS


def of_words(words: Sequence[str]) -> Speculation:
    """What a recipe said, from the words for this command.

    Raises:
        UsageError: as speculation.parse(), or the caller's label says another method.
    """
    return _checked(_parser().parse_args(words))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="utils.recipes.speculate", description=__doc__)
    parser.add_argument("--engine", required=True, help="vllm or sglang")
    parser.add_argument("--method", required=True)
    parser.add_argument("--num", required=True, help="draft length N")
    parser.add_argument("--label", default="", help="SPEC_DECODING as the caller set it")
    parser.add_argument("--environment", action="store_true", help="what forces acceptance")
    parser.add_argument("keys", nargs="*", metavar="key=value")
    return parser


def _checked(options: argparse.Namespace) -> Speculation:
    found = parse(options.engine, options.method, options.num, options.keys)
    if options.label not in ("", found.method):
        raise UsageError(
            f"SPEC_DECODING is {options.label!r}, but this recipe speculates with {found.method!r};"
            " unset it, the recipe says which"
        )
    return found


def synthetic(said: Speculation, environment: Mapping[str, str]) -> Forced:
    """What SYNTHETIC_ACCEPTANCE=true adds to a recipe that speculates.

    Raises:
        UsageError: as export.choose() and export.forced().
    """
    golden = export.choose(
        registry.load(registry.FOLDER).goldens,
        environment["MODEL_PREFIX"],
        environment["THINKING"],
        said.num_tokens,
        {"method": said.method, **{name: said.text(name) for name in DRAFTER[1:]}},
    )
    return export.forced(said.engine, golden.acceptance_length, said.num_tokens)


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
