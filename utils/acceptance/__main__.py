"""`python3 -m utils.acceptance conformance`: what a live server's speculation figures are worth."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from utils import arguments, errors
from utils.acceptance import conformance, engines, recognise
from utils.acceptance.checks import Asked
from utils.acceptance.preflight import Target


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    urls = tuple(args.metrics_url or ())
    if args.engine == recognise.AUTO:
        found = recognise.recognise(args.base_url, urls)
        engine = found.engine
        print(f"engine: {engine.name}, because {found.by}", file=sys.stderr)
    else:
        engine = engines.load(args.engine)
    target = Target(args.base_url, urls, engine, args.model, args.engines)
    asked = Asked(
        args.num_spec_tokens or 0, args.spec_method, args.thinking, args.requests, args.output_len
    )
    report = conformance.examine(target, args.requests, args.output_len, asked)
    if args.json:
        print(json.dumps(conformance.as_json(report), indent=2, sort_keys=True, allow_nan=False))
    else:
        print("\n".join(report.lines()))
    return report.status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="utils.acceptance", description=__doc__)
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "conformance",
        help="compare a server's speculation figures with the definition",
        description="Exit status 0: all agree; 1: some differ; 3: nothing could be measured.",
    )
    add = command.add_argument
    url, base_url, count = arguments.url, arguments.base_url, arguments.count
    add("--base-url", required=True, type=base_url, help="http://host:port, without /v1")
    add("--engine", default=recognise.AUTO, help="adapter (default: auto)")
    add("--metrics-url", action="append", type=url, help="default: by engine; one a worker")
    add("--model", required=True, help="served model name")
    add("--engines", type=count, default=1, help="data-parallel engines expected")
    add("--num-spec-tokens", type=count, help="N (default: as the server says)")
    add("--spec-method", help="default: as the server says")
    add("--thinking", choices=["on", "off"], default="off", help="mode of the server's template")
    add("--requests", type=count, default=8)
    add("--output-len", type=count, default=96, help="maximum new tokens of a request")
    add("--json", action="store_true")
    return parser


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
