"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(
    what: Callable[[], object],
    seconds: float = 30.0,
    said: Callable[[], object] | str = "it never came true",
) -> None:
    """Until something is true; said: what a failure shows."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, said() if callable(said) else said
        time.sleep(0.02)
