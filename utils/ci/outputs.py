"""A sweep's plan → outputs of a GitHub step, which the workflow makes its matrix of."""

from __future__ import annotations

import json
import os
from pathlib import Path

from utils import errors
from utils.ci import cell
from utils.errors import UsageError


def write(plan: Path) -> int:
    """Outputs commit, and the lists of matrix.json as JSON, `[]` when there is nothing.

    Raises:
        UsageError: not in a GitHub step, or the plan can't be used.
    """
    path = os.environ.get("GITHUB_OUTPUT")
    if not path:
        raise UsageError("GITHUB_OUTPUT is not set: this is for a step of a workflow")
    matrix = cell.read(plan, "matrix.json", "matrix")
    lines = [f"commit={cell.read(plan)['commit']}"]
    lines += [f"{name}={json.dumps(matrix[name])}" for name in sorted(matrix) if name != "schema"]
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print("\n".join(lines), flush=True)
    return errors.PASS
