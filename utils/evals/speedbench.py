#!/usr/bin/env python3
"""Prepare prompt sets: SPEED-Bench by its pinned upstream script, and the HumanEval proxy.

The second call for a set that is there takes no network and no time. Where nodes have no internet,
prepare on another machine and copy the folder, or set SPEEDBENCH_SOURCE_DIR to a folder with
  prepare.py                the pinned script
  <owner>/<name>/           each data set as `hf download <owner>/<name> --repo-type dataset
                            --revision <commit> --local-dir <folder>` leaves it
  <host>/<path>             other files, by their URL
  tiktoken/                 a TIKTOKEN_CACHE_DIR, for throughput_* and --count-tokens
and whatever is missing is named with the command that gets it.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[2])

import argparse
from collections.abc import Sequence

from utils import errors, models
from utils.errors import UsageError
from utils.evals import speedbench_prepare
from utils.evals.humaneval_proxy import prepare_proxy
from utils.evals.prompt_files import PROXY_CONFIG

TIMEOUT_S = 7200.0


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    config, category = args.config, args.category
    if args.model_prefix:
        if category:
            raise UsageError("--category goes with --config; models.yaml says it for a model")
        prompt_set = models.load(args.model_prefix).prompt_set
        config, category = prompt_set.config, prompt_set.category
    if config == PROXY_CONFIG:
        path = prepare_proxy(args.output_dir)
    else:
        path = speedbench_prepare.prepare(args.output_dir, config, category, args.timeout_s)
    if args.count_tokens:
        speedbench_prepare.count_tokens(path, args.timeout_s)
    print(path)
    return errors.PASS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="speedbench", description=(__doc__ or "").split("\n")[0])
    prepare = parser.add_subparsers(dest="command", required=True).add_parser(
        "prepare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = prepare.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", choices=[*speedbench_prepare.CONFIGS, PROXY_CONFIG])
    what.add_argument("--model-prefix", help="prepare what this model's row in models.yaml wants")
    add = prepare.add_argument
    add("--category", help="only its rows; qualitative fetches the sources of no others")
    default = models.prompts_dir()
    add(
        "--output-dir", type=Path, default=default, help="default: SPEEDBENCH_DIR, else %(default)s"
    )
    add("--timeout-s", type=float, default=TIMEOUT_S, help="for everything (%(default)s)")
    add("--count-tokens", action="store_true", help="print token statistics of the first turns")
    return parser


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
