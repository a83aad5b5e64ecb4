"""Limits of a good request, as people write them: "ttft_s=0.5 tpot_s=0.05"."""

from __future__ import annotations

from utils.errors import UsageError

LATENCIES = ("ttft_s", "tpot_s", "e2e_s")


def parse(text: str) -> dict[str, float]:
    """Latency → most seconds; empty text has no limits.

    Raises:
        UsageError: an unknown latency, one twice, or no number above 0.
    """
    limits: dict[str, float] = {}
    for word in text.split():
        name, _, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if name not in LATENCIES or name in limits or not 0.0 < value < float("inf"):
            raise UsageError(
                f"SLO has {word!r}: want each of {', '.join(LATENCIES)} at most once, as"
                " name=seconds, e.g. ttft_s=0.5"
            )
        limits[name] = value
    return limits
