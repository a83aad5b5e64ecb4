"""Write down what a server says at temperature 0, token by token, for `utils.recipes lossless`.

Speculation must not change it. One request at a time, so that nothing but speculation can.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from utils import errors, models, records
from utils.acceptance import engines
from utils.acceptance.client import Answer, Load, Prompt, api_headers
from utils.acceptance.engines import Counts, Engine
from utils.acceptance.preflight import Target
from utils.acceptance.window import local_session
from utils.errors import NotMeasured, UsageError
from utils.evals.prompt_files import prepared_path, read_prompts
from utils.records import Json
from utils.serving import accepted

if TYPE_CHECKING:
    import requests

FILE = "greedy_outputs.json"
PROMPTS, OUTPUT_LEN = 8, 128
NONE = "none"


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    model = models.load(args.model_prefix)
    plan = records.read_json(args.plan, "plan") if args.plan else {}
    method = args.spec_method or plan.get("spec_decoding")
    if not method:
        raise UsageError("say how the server speculates: --spec-method none, or by which method")
    started = records.utc_now()
    path = prepared_path(args.prompts_dir, model.prompt_set)
    prompts = read_prompts(path, model.prompt_set.category, args.num_prompts)
    load = Load(
        base_url=args.base_url.rstrip("/"),
        model=args.model,
        sampling={"temperature": 0.0},
        chat_template_kwargs=model.mode(args.thinking).chat_template_kwargs,
        output_len=args.output_len,
        concurrency=1,
        endpoint=model.endpoint,
    )
    ranks = plan.get("topology", {}).get("engines", 1)
    target = Target(load.base_url, (), engines.load(args.engine), args.model, ranks)
    outputs, counts = _observe(target, load, prompts.prompts, method)
    record = {
        "schema": "greedy_outputs/1",
        "run_id": plan.get("run_id"),
        "model": args.model,
        "model_prefix": args.model_prefix,
        "thinking": args.thinking,
        "spec_decoding": method,
        "dataset": prompts.dataset,
        "prompts_sha256": prompts.sha256,
        "output_len": args.output_len,
        **{name: getattr(counts, name, None) for name in ("steps", "accepted")},
        "started": started,
        "finished": records.utc_now(),
        "outputs": outputs,
    }
    records.write_json(args.output, record, "greedy_outputs")
    print(f"greedy: outputs of {len(outputs)} prompts; {args.output}")
    return errors.PASS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="utils.serving.greedy", description=__doc__)
    add = parser.add_argument
    add("--base-url", required=True, help="http://host:port, without /v1")
    add("--engine", default="vllm")
    add("--model", required=True, help="served model name")
    add("--model-prefix", required=True, help="key in models.yaml")
    add("--thinking", choices=["on", "off"], default="off")
    add("--spec-method", help="how the server speculates, or none (default: by plan)")
    add("--prompts-dir", type=Path, default=models.prompts_dir())
    add("--num-prompts", type=int, default=PROMPTS)
    add("--output-len", type=int, default=OUTPUT_LEN, help="maximum new tokens")
    add("--plan", type=Path, help="plan.json of the run")
    add("--output", type=Path, required=True)
    return parser


def _observe(
    target: Target, load: Load, prompts: Sequence[Prompt], method: str
) -> tuple[list[Json], Counts | None]:
    """The outputs, and what was speculated meanwhile; None of a server that doesn't."""
    session = local_session()
    opened = accepted.begin(target, method) if method != NONE else None
    outputs = [_ask(session, target.engine, load, prompt) for prompt in prompts]
    if opened is None:
        return outputs, None
    answers = [Answer(output["id"], ok=True) for output in outputs]
    counters = accepted.end(opened, answers).by_counters
    if counters is None:
        raise NotMeasured("the server's counters don't say what it accepted", "no_metrics")
    return outputs, counters


def _ask(session: requests.Session, engine: Engine, load: Load, prompt: Prompt) -> Json:
    """One answer with the two likeliest tokens of every position.

    Raises:
        NotMeasured: no answer, or one without log probabilities.
    """
    import requests

    body = load.body(prompt.messages, engine)
    del body["stream"], body["stream_options"]
    body |= {"logprobs": True, "top_logprobs": 2}
    try:
        response = session.post(
            load.url, json=body, headers=api_headers(), timeout=load.request_deadline_s
        )
        if response.status_code != 200:
            raise NotMeasured(f"{prompt.id}: HTTP {response.status_code}: {response.text[:200]}")
        choice = records.parse_json(response.text)["choices"][0]
        positions = (choice.get("logprobs") or {}).get("content") or []
        rows = [_position(position) for position in positions]
    except (requests.RequestException, ValueError, LookupError, TypeError) as error:
        raise NotMeasured(f"{prompt.id}: no usable answer at {load.url}: {error}") from error
    if not rows:
        raise NotMeasured(f"{prompt.id}: the server gives no log probabilities", "no_logprobs")
    tokens, runners_up, margins = map(list, zip(*rows, strict=True))
    return {
        "id": prompt.id,
        "finish_reason": choice.get("finish_reason"),
        "tokens": tokens,
        "runners_up": runners_up,
        "margins": margins,
    }


def _position(position: Json) -> tuple[str, str | None, float | None]:
    """Token, the likeliest other one, and by how much the token is likelier, in nats."""
    token = spelled(position)
    others = [other for other in position.get("top_logprobs") or () if spelled(other) != token]
    if not others:
        return token, None, None
    other = max(others, key=lambda row: row["logprob"])
    margin = position["logprob"] - other["logprob"]
    return token, spelled(other), margin if math.isfinite(margin) else None


def spelled(entry: Json) -> str:
    """A token's text; its bytes where they are no whole character, which tokens may share."""
    text: str = entry["token"]
    if "\ufffd" in text and entry.get("bytes"):
        return "<" + bytes(entry["bytes"]).hex() + ">"
    return text


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
