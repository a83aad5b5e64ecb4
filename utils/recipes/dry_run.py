"""DRY_RUN=1: print one step as a JSON line instead of taking it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from utils import errors
from utils.recipes import spelling
from utils.serving.launch import read_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Print `STEP NAME=value... argv...`; the words are checked as they would be for real."""
    step, *words = sys.argv[1:] if arguments is None else arguments
    command = read_command(words)
    argv = spelling.spell_for(command.argv, os.environ)
    print(json.dumps({"step": step, "argv": argv, "env": command.shown_env()}))
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
