"""The product's client under the same load as small_client.py; same arguments, same output."""

from __future__ import annotations

import json
import sys
import time
from statistics import median

import aiohttp  # noqa: F401 # before the clock starts, as the yardstick does

from utils.acceptance import client, engines
from utils.acceptance.client import Load, Pace, Prompt


def main(base_url: str, streams: int, requests: int) -> None:
    prompts = [
        Prompt(str(n), ({"role": "user", "content": f"Request {n}: a text about the sea."},))
        for n in range(requests)
    ]
    load = Load(base_url, "m", {"temperature": 0.0}, {}, 40, streams)
    pace, cpu = Pace(streams), time.process_time()
    answers = client.run(load, prompts, engines.load("openai"), pace)
    cpu_s = time.process_time() - cpu
    failed = [answer.error for answer in answers if not answer.ok]
    if failed:
        raise SystemExit(f"{len(failed)} failed: {failed[0]}")
    found = {
        "e2e_s": median(answer.e2e_s or 0.0 for answer in answers),
        "cpu_s": cpu_s,
        "duration_s": pace.duration_s,
        "reached": pace.reached_concurrency,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
