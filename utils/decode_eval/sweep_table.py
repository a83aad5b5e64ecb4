"""A sweep's rows as lines of text."""

from __future__ import annotations

from utils.records import Json

HEAD = (
    f"{'engine':<8} {'prompt set':<12} conc   N      AL  95 % interval   tokens/s speedup "
    "same answers  accepted at 1, 2…"
)


def line(row: Json) -> str:
    """One row of the table."""
    head = (
        f"{row['engine']:<8} {row['prompt_set']:<12} {row['concurrency']:>4} "
        f"{row['num_speculative_tokens'] or '-':>3} "
    )
    if row["error"]:
        return f"{head} not measured: {row['reason']}: {row['error']}"
    al, low, high = (row[name] for name in ("acceptance_length", "lower", "upper"))
    length = "      -" if al is None else f"{al:7.4f}"
    interval = "" if low is None else f"{low:.3f}..{high:.3f}"
    compared = f"{'-':>7} {'-':>12}"
    if row["speedup"] is not None:
        same = f"{row['same_answers']}/{row['prompts']}"
        compared = f"{row['speedup']:6.2f}x {same:>12}"
    places = " ".join(f"{share:.3f}" for share in row["per_position"])
    return f"{head}{length}  {interval:<14} {row['output_tokens_per_s']:9.1f} {compared}  {places}"
