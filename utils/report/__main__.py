"""Render a result directory: a table here, summary.md in the directory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from utils import errors, records
from utils.report import content, markdown, terminal

MIN_WIDTH = 150


def main(argv: Sequence[str] | None = None) -> int:
    """0 when rendered, whatever the verdicts are: the gate's status is the gate's to give."""
    parser = argparse.ArgumentParser(prog="utils.report", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--output", type=Path, help="default: DIRECTORY/summary.md")
    args = parser.parse_args(argv)
    report = content.gather(args.directory)
    output = args.output or args.directory / "summary.md"
    text = markdown.render(report)
    records.write_text(output, text)
    if step_summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(step_summary).open("a", encoding="utf-8") as file:
            file.write(text)
    console = Console()
    if not console.is_terminal:  # a CI log has no width of its own
        console = Console(width=MIN_WIDTH)
    terminal.show(report, console)
    console.print(f"results: {args.directory}\nsummary: {output}", markup=False, soft_wrap=True)
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
