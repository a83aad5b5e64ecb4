"""The expected errors, and the exit status that each of them means."""

from __future__ import annotations

import sys
from collections.abc import Callable

PASS = 0
FAIL = 1
USAGE = 2
NOT_MEASURED = 3


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


def run(main: Callable[[], int]) -> int:
    """Run a command's main function: an expected error becomes one line, a crash its traceback."""
    try:
        return main()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130
    except Exception:  # noqa: BLE001 # the one place: a crash must not look like a measured failure
        import traceback  # slow, and only for a crash

        traceback.print_exc()
        print("error: this is a bug; nothing was measured by it", file=sys.stderr)
        return NOT_MEASURED
