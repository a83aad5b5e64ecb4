"""python3 -m utils.decode_eval COMMAND: the training side from a shell."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from utils import errors
from utils.errors import UsageError
from utils.models import near

# Command → module of this package and its function, which takes the words that follow.
COMMANDS = {
    "run": ("commands", "run"),
    "watch": ("commands", "watch"),
    "doctor": ("commands", "doctor"),
    "reap": ("commands", "reap"),
    "history": ("gate", "table"),
    "compare": ("gate", "compare"),
    "check": ("gate", "check"),
    "sweep": ("sweep", "main"),
    "plot": ("plot", "main"),
    "referee": ("judge", "main"),
}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(f"usage: python3 -m utils.decode_eval {{{','.join(COMMANDS)}}} …  (each has --help)")
        return errors.PASS if words else errors.USAGE
    if words[0] not in COMMANDS:
        raise UsageError(f"no command {words[0]!r}; {near(words[0], COMMANDS)}")
    module, name = COMMANDS[words[0]]
    command = getattr(importlib.import_module(f"utils.decode_eval.{module}"), name)
    return int(command(words[1:]))


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
