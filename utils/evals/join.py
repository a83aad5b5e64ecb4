"""The join of what was asked for and what came back: a verdict for every cell of either side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utils import records
from utils.errors import NotMeasured
from utils.evals import evidence, findings, throughput_files
from utils.evals.expected import Expected
from utils.evals.provenance import ThisRun
from utils.evals.score_points import ScorePoints
from utils.evals.thresholds import Thresholds
from utils.evals.throughput_files import Serving
from utils.golden.registry import Registry
from utils.records import Json
from utils.verdicts import Verdict

if TYPE_CHECKING:
    from utils.golden.gate import Judgement

Goldens = Callable[[], Registry]
AL = "acceptance_length"


class Join:
    """One directory's verdicts."""

    def __init__(
        self, directory: Path, asked: Expected, thresholds: Thresholds, goldens: Goldens
    ) -> None:
        self.directory = directory
        self.asked = asked
        self.limits = thresholds.limits
        self.goldens = goldens
        self.run = ThisRun(asked)
        self.points = ScorePoints(str(directory), asked, thresholds)

    def verdicts(self, pattern: str) -> tuple[list[Verdict], list[str]]:
        """Verdicts, and names of JSON files that are no results of this run."""
        found = evidence.gather(self.directory, pattern, self.points.take)
        asked = self.asked
        verdicts = [*asked.problems, *found.problems]
        if asked.says_nothing and not asked.problems:
            verdicts.append(findings.unplanned())
        if asked.plan and asked.plan["synthetic_acceptance"] and asked.cells("score"):
            verdicts.append(findings.synthetic())
        verdicts += self.points.verdicts()
        verdicts += self._al(found.al)
        if asked.judges_throughput:
            return [*verdicts, *self._throughput(found.throughput)], found.ignored
        return verdicts, [*found.ignored, *(file.name for file in found.throughput)]

    def _al(self, files: Sequence[tuple[str, Json]]) -> Iterator[Verdict]:
        """Cells of one curve are judged together."""
        judged = list(self._al_cells(files))
        if len(judged) < 2 or not files:
            yield from (one if isinstance(one, Verdict) else one.verdict for one in judged)
            return
        from utils.golden import curve, gate

        yield from curve.joint(
            [gate.Judgement(one, None) if isinstance(one, Verdict) else one for one in judged],
            self.goldens().tolerances,
        )

    def _al_cells(self, files: Sequence[tuple[str, Json]]) -> Iterator[Verdict | Judgement]:
        there = _by_key(
            ((r["thinking_mode"], r["num_speculative_tokens"]), (name, r)) for name, r in files
        )
        cells = self.asked.cells("al")
        wanted = {(cell["thinking"], cell["num_speculative_tokens"]) for cell in cells}
        forbidden = self.asked.spec_decoding is not None and not self.asked.al_required
        if self.asked.al_required and not (wanted or there):
            text = (
                f"the run speculates ({self.asked.spec_decoding}), but there is no AL record; "
                "run the AL eval (python3 -m utils.evals.speedbench_al measure)"
            )
            yield findings.unmeasured("AL", AL, "missing", text)
        for thinking, n in sorted(wanted | there.keys()):
            cell, group = f"AL {thinking} N={n}", there.get((thinking, n), [])
            names = tuple(name for name, _ in group)
            due = (thinking, n) in wanted or not (wanted or forbidden)
            odd = findings.odd_one(cell, AL, names, due)
            yield odd or self._judge_al(cell, group[0][1], names)

    def judge_al(self, cell: str, record: Json, names: tuple[str, ...]) -> Verdict:
        """A verdict on one record, whatever else there is."""
        judged = self._judge_al(cell, record, names)
        return judged if isinstance(judged, Verdict) else judged.verdict

    def _judge_al(self, cell: str, record: Json, names: tuple[str, ...]) -> Verdict | Judgement:
        from utils.golden import gate

        run = record.get("run", {})
        try:
            self.run.check(
                started=_time(run.get("started")),
                run_id=run.get("run_id"),
                commit=run.get("commit"),
                # Version 1 may leave the prefix out; the golden's own match looks at the name then.
                prefix=record.get("model_prefix") or self.asked.prefix,
                method=record.get("speculation", {}).get("method"),
            )
        except NotMeasured as error:
            return findings.unmeasured(cell, AL, error.reason, str(error), names)
        found = gate.judge(record, self.goldens())
        return replace(found, verdict=replace(found.verdict, evidence=names))

    def _throughput(self, files: Sequence[Serving]) -> Iterator[Verdict]:
        there = _by_key((file.cell, file) for file in files)
        cells = self.asked.cells("throughput")
        wanted = {(cell["isl"], cell["osl"], cell["concurrency"]) for cell in cells}
        for key in sorted(wanted | there.keys(), key=lambda key: [value or 0 for value in key]):
            cell, group = throughput_files.cell_name(key), there.get(key, [])
            names = tuple(file.name for file in group)
            due = key in wanted or self.asked.plan is None
            odd = findings.odd_one(cell, throughput_files.CHECK, names, due)
            yield odd or self.judge_throughput(cell, group[0])

    def judge_throughput(self, cell: str, file: Serving) -> Verdict:
        """A verdict on one file, whatever else there is."""
        said = dict(file.said)
        try:
            self.run.check(started=_time(said.pop("started", None)), **said)
        except NotMeasured as error:
            check = throughput_files.CHECK
            return findings.unmeasured(cell, check, error.reason, str(error), (file.name,))
        return throughput_files.judge(file, cell, self.limits)


def _by_key(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    table: dict[Any, list[Any]] = {}
    for key, value in pairs:
        table.setdefault(key, []).append(value)
    return table


def _time(text: str | None) -> float | None:
    return None if text is None else records.parse_time(text)
