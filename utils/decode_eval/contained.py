"""The log of decode eval, and the fence around it: nothing of it may end a training."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger("specgate.decode_eval")
T = TypeVar("T")


def contained(default: Callable[[], T]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Whatever goes wrong in a method is logged with its traceback, and default() returned."""

    def decorate(method: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(method)
        def guarded(*args: Any, **kwargs: Any) -> T:
            try:
                return method(*args, **kwargs)
            except Exception:  # the promise: training goes on
                log.exception("decode_eval: %s failed; training goes on", method.__name__)
                return default()

        return guarded

    return decorate


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
