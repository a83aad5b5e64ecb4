"""A report as GitHub Markdown: the step summary, and the body of a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from utils.report import board
from utils.report.comparison import HEADS
from utils.report.content import POSITIONS, Report, four
from utils.report.measurements import Speed
from utils.verdicts import Outcome, one_line

# GitHub drops a step's whole summary above 1,024 KiB, and refuses a comment of more than 65,536
# characters.
SUMMARY_BYTES = 900 * 1024
COMMENT_BYTES = 65_000
COMMENT_MARK = "<!-- specgate report -->"
RESERVE = 400  # for the lines that say what was left out, and the ends of sections
MARK = {
    Outcome.PASS: "✅ pass",
    Outcome.FAIL: "❌ fail",
    Outcome.NOT_MEASURED: "⚠️ not measured",
    Outcome.INCONCLUSIVE: "❔ inconclusive",
}
# What Markdown or GitHub would take for more than text: a log's line must not ping anybody.
SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<!\w)_|_(?!\w)")


@dataclass(frozen=True)
class Part:
    """Lines that belong together; rows may be left out from the end, the head only with all."""

    head: str
    rows: Sequence[str] = ()


def summary(report: Report, limit: int = SUMMARY_BYTES) -> str:
    """Everything in words and tables, in at most `limit` bytes; ends with a newline."""
    return _fitted([*_verdicts(report), *_more(report)], limit)


def comment(report: Report, limit: int = COMMENT_BYTES) -> str:
    """Verdicts alone, after a mark by which the comment is found again."""
    head, *parts = _verdicts(report)
    return _fitted([Part(f"{COMMENT_MARK}\n{head.head}"), *parts, *_comparison(report)], limit)


def _verdicts(report: Report) -> Iterator[Part]:
    yield Part(f"## {report.headline}")
    yield Part(report.summary)
    if report.red:
        lines = [
            f"- {MARK[row.outcome]} **{escape(row.name)}** {escape(row.why)}" for row in report.red
        ]
        yield Part("", lines)
    yield _table(board.HEADS, ((MARK[row.outcome], *row.texts) for row in report.rows))


def _comparison(report: Report) -> Iterator[Part]:
    if report.not_compared:
        yield Part(f"### Not compared with the baseline\n\n{escape(report.not_compared)}")
    if found := report.comparison:
        yield Part(f"### Against the baseline of {escape(found.baseline)}")
        yield _table(HEADS, [change.texts() for change in found.changes])
    if found and found.added:
        yield Part("", [f"- not in the baseline: {escape(name)}" for name in found.added])


def _more(report: Report) -> Iterator[Part]:
    yield from _comparison(report)
    if report.replaced:
        lines = (f"- {MARK[r.outcome]} {escape(r.name)} {escape(r.why)}" for r in report.replaced)
        yield Part("### Replaced by later results\n\n", list(lines))
    if shares := report.positions:
        yield Part("### Acceptance by position")
        yield _table(POSITIONS, shares)
    if report.speeds:
        yield Part("### Speed")
        heads = ("cell", "tokens/s", "TTFT p50, s", "TPOT p50, s", "J per token")
        yield _table(heads, map(_speed, report.speeds))
    for pair in report.twins:
        yield Part(f"### {escape(pair.speculated)} against {escape(pair.base)}")
        said = [f"- {MARK[v.outcome]} {escape(v.line())}" for v in pair.verdicts]
        yield Part("", said or [f"- {escape(pair.refused)}"])
    if notes := report.notes:
        yield Part("", [f"- {escape(note)}" for note in notes])
    for job, facts in report.provenance:
        if facts:
            yield Part(f"### What ran{': ' + escape(job.name) if job.name else ''}")
            yield _table(("", ""), facts)


def _speed(speed: Speed) -> Sequence[str]:
    name = f"{speed.job}: {speed.cell}" if speed.job else speed.cell
    medians = (four(speed.latencies.get(what, {}).get("50")) for what in ("ttft", "tpot"))
    energy = (speed.gpu or {}).get("energy_per_output_token_j")
    return name, f"{speed.tokens_per_s:.1f}", *medians, four(energy)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Part:
    head = "| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads) + "\n"
    return Part(head, ["| " + " | ".join(map(escape, row)) + " |" for row in rows])


def _fitted(parts: Iterable[Part], limit: int) -> str:
    """The parts in at most `limit` bytes, cut at a row; says how many rows were left out."""
    text, room, queue = "", limit - RESERVE, list(parts)
    for index, part in enumerate(queue):
        lines, left = [], room - len(text.encode()) - len(part.head.encode())
        for line in part.rows:
            left -= len(line.encode()) + 1
            if left < 0:
                break
            lines.append(line)
        if left < 0:
            missing = sum(len(other.rows) for other in queue[index:]) - len(lines)
            lines.append(f"\n{missing} more rows are left out here; report.html has them all.")
            return text + part.head + "\n".join(lines) + "\n"
        text += part.head + "\n".join(lines) + "\n\n"
    return text.rstrip("\n") + "\n"


def escape(text: str) -> str:
    """One line of text as Markdown shows it: no tag, link, mark or mention comes of it."""
    line = SPECIAL.sub(r"\\\g<0>", one_line(" ".join(text.split())))
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return line.replace("@", "@&#8203;")  # a space of no width: nobody is mentioned
