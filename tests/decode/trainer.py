"""A plain training in a process of its own: `trainer.py FOLDER FIRST LAST [hold]`.

FOLDER/block.json is its decode_eval block. Its weights change with every step. It appends what it
logs to FOLDER/metrics.jsonl. With "hold" it makes FOLDER/holding after its last step and stays
there, until FOLDER/holding is removed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tests.decode.support import export
from utils import decode_eval


def main() -> None:
    folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    holding = folder / "holding"
    config = decode_eval.resolve_decode_eval_config(json.loads((folder / "block.json").read_text()))

    def log(values: dict[str, float], step: int) -> None:
        with (folder / "metrics.jsonl").open("a") as file:
            print(json.dumps({**values, "at": step}), file=file)

    with decode_eval.session(config, export=export, log_metrics=log) as session:
        for step in range(first, last + 1):
            session.step(step, b"weights of step %d" % step)
        if sys.argv[4:] == ["hold"]:
            holding.touch()
            while holding.exists():
                time.sleep(0.05)


if __name__ == "__main__":
    main()
