"""How far a long step is: a bar on a terminal, a plain line now and then elsewhere.

Imports the standard library alone: set-up shows its progress before anything is installed. Where
`rich` isn't installed, as in an engine's container, a terminal gets the plain lines too.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

EVERY_S = 30.0  # between plain lines: a CI log is read later
REFRESH_S = 0.5  # of a bar: drawing must not take part in what is measured
NOTE_CHARACTERS = 100
TAIL_BYTES = 4096
TAIL_LINES = 15


class Progress:
    """One step. total: how many things there are; limit_s: when it is given up; either may be None.

    every_s: seconds between plain lines; 0 writes one a step.
    """

    def __init__(
        self,
        what: str,
        total: float | None = None,
        *,
        limit_s: float | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        self.what, self.total, self.limit_s, self.every_s = what, total, limit_s, every_s
        self.done = 0.0
        self.began = self.shown = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self.bar = _bar(self.what, self.total or self.limit_s)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def step(self, note: str = "", *, done: float | None = None) -> None:
        """One thing more is done, or so many all in all; `note` is what is going on."""
        self.done = self.done + 1 if done is None else done
        self.show(note)

    def show(self, note: str = "") -> None:
        """Say how far it is, if it is time to."""
        now = time.monotonic()
        if now - self.shown < (REFRESH_S if self.bar else self.every_s):
            return
        self.shown = now
        elapsed_s = now - self.began
        note = _short(note)
        if self.bar:
            counted = self.done if self.total else elapsed_s
            self.bar.update(self.bar.task_ids[0], completed=counted, note=note)
            self.bar.refresh()
        else:
            print(line(self, elapsed_s, note), file=sys.stderr, flush=True)


def line(step: Progress, elapsed_s: float, note: str) -> str:
    """Such as "AL: 20 of 80, 25 %, 1 min so far, about 3 min left"."""
    parts = [f"{duration(elapsed_s)} so far"]
    if step.total:
        parts.insert(0, f"{step.done:g} of {step.total:g}, {step.done / step.total:.0%}")
        if 0 < step.done < step.total:
            left_s = elapsed_s / step.done * (step.total - step.done)
            parts.append(f"about {duration(left_s)} left")
    if step.limit_s:
        parts.append(f"limit {duration(step.limit_s)}")
    return f"{step.what}: {', '.join(parts)}{f'; {note}' if note else ''}"


def duration(seconds: float) -> str:
    """To two places, e.g. 45 s, 3 min, 2 h 5 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def last_line(log: Path) -> str:
    """The last line of a log that says something; empty while there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = [part.strip() for part in text.replace("\r", "\n").split("\n")]
    return next((part for part in reversed(lines) if part), "")


def tail(output: str) -> str:
    """The end of a program's output, marked line by line: what an error's text ends with."""
    return "\n".join(f"  | {line}" for line in output.splitlines()[-TAIL_LINES:])


def _short(note: str) -> str:
    shown = "".join(letter for letter in note if letter.isprintable())
    return shown if len(shown) <= NOTE_CHARACTERS else f"{shown[: NOTE_CHARACTERS - 1]}…"


def _bar(what: str, total: float | None) -> Any:
    """A started bar on stderr, None where rich isn't installed."""
    try:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    shown = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}" if total else "{task.completed:.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
    shown.start()
    shown.add_task(escape(what), total=total, note="")
    return shown
