"""The expected errors, and the exit status that each of them means."""

from __future__ import annotations

import contextlib
import errno
import io
import signal
import sys
from collections.abc import Callable, Iterator

PASS = 0
FAIL = 1
USAGE = 2
NOT_MEASURED = 3
OUTPUT_ENDED = (errno.EPIPE, errno.ENOSPC)


class HarnessError(Exception):
    """Expected and explained: its text names the thing, the limit and the remedy."""

    status = NOT_MEASURED


class UsageError(HarnessError):
    """Bad usage or a configuration file that can't be used."""

    status = USAGE


class NotMeasured(HarnessError):
    """Something required could not be measured, or its measurement is invalid; reason names why."""

    def __init__(self, text: str, reason: str = "invalid_measurement") -> None:
        super().__init__(text)
        self.reason = reason


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Another's data may hold anything; whatever of ours it breaks, it measures nothing.

    Raises:
        NotMeasured: something was broken.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        text = f"{what} holds what no engine says ({type(error).__name__}: {error})"
        raise NotMeasured(text, "wrong_shape") from error


@contextlib.contextmanager
def ending_on_term() -> Iterator[None]:
    """TERM ends the block by way of `finally`, with status 143."""

    def stop(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(main: Callable[[], int]) -> int:
    """Run a command's main function: an expected error becomes one line, a crash its traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what its encoding lacks is no reason to die
            stream.reconfigure(errors="backslashreplace")
    try:
        return main()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 # the one place: a crash is no measured failure
        if isinstance(error, OSError) and error.errno in OUTPUT_ENDED:
            print(f"error: the output can't be written ({error.strerror})", file=sys.stderr)
            return NOT_MEASURED
        import traceback  # slow, and only for a crash

        traceback.print_exc()
        print("error: this is a bug; nothing was measured by it", file=sys.stderr)
        return NOT_MEASURED
