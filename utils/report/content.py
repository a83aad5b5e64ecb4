"""What a report says, gathered once; every surface renders this and judges nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from utils.evals import evidence, validate_scores
from utils.evals.score_files import ScoreFile
from utils.evals.validate_scores import Options
from utils.golden import registry
from utils.golden.registry import Registry
from utils.report import board, lengths, measurements, provenance, twins
from utils.report.board import Job, Row
from utils.report.lengths import Length
from utils.report.measurements import Score, Speed
from utils.report.provenance import Fact
from utils.report.twins import Twins
from utils.verdicts import Outcome, exit_status

if TYPE_CHECKING:
    from utils.report.comparison import Comparison

POSITIONS = ("cell", "draft position", "accepted / steps", "given the one before")
HEADLINE = {
    0: "PASS: every check passed",
    1: "FAIL: a measured value failed its gate",
    3: "NOT MEASURED: something required has no verdict",
}


@dataclass
class Report:
    """A result directory, ready to be rendered. rows: the worst first; only they decide.

    replaced: verdicts on results of which there are later ones, for information. provenance: per
    job, what ran. twins: jobs with and without speculation, for information. comparison: with a
    baseline, if one was given; not_compared: why there is none.
    """

    directory: Path
    status: int
    summary: str
    rows: list[Row]
    jobs: list[Job]
    replaced: list[Row] = field(default_factory=list)
    lengths: list[Length] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    speeds: list[Speed] = field(default_factory=list)
    twins: list[Twins] = field(default_factory=list)
    provenance: list[tuple[Job, list[Fact]]] = field(default_factory=list)
    comparison: Comparison | None = None
    not_compared: str = ""

    @property
    def headline(self) -> str:
        return HEADLINE[self.status]

    @property
    def red(self) -> list[Row]:
        """Everything that keeps the run from being green, the worst first."""
        return [row for row in self.rows if row.outcome is not Outcome.PASS]

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures must know beside the verdicts."""
        return [note for length in self.lengths for note in _notes(length)]

    @property
    def positions(self) -> list[tuple[str, str, str, str]]:
        """Rows under POSITIONS."""
        return [
            (length.name, str(position), four(share), four(given))
            for length in self.lengths
            for position, (share, given) in enumerate(
                zip(length.per_position, length.conditional, strict=True), start=1
            )
        ]


def four(value: float | None) -> str:
    """A figure as tables show it."""
    return "—" if value is None else f"{value:.4f}"


def gather(directory: Path, options: Options | None = None) -> Report:
    """Judge a directory of results anew and collect what explains the verdicts.

    Raises:
        UsageError: as board.read().
    """
    options = options or Options()
    jobs, of_all = board.read(directory, options)
    rows = board.worst_first([row for job in jobs for row in job.rows] + of_all)
    verdicts = [row.verdict for row in rows]
    report = Report(
        directory=directory,
        status=exit_status(verdicts),
        summary=validate_scores.summary(verdicts),
        rows=rows,
        jobs=jobs,
        replaced=[row for job in jobs for row in job.replaced],
    )
    goldens = cache(lambda: registry.load(options.golden))
    for job in jobs:
        _explain(report, job, goldens)
    report.twins = list(twins.find(jobs))
    return report


def _explain(report: Report, job: Job, goldens: Callable[[], Registry]) -> None:
    """What is behind a job's verdicts; files that later ones replaced are left out."""
    scores: dict[str, ScoreFile] = {}
    gone = {file for row in job.replaced for file in row.verdict.evidence}
    found = evidence.gather(job.folder, "*.json", lambda file, _: scores.update({file.name: file}))
    al = [(name, record) for name, record in found.al if name not in gone]
    for name, record in al:
        report.lengths.append(lengths.read(job.name, name, record, job.rows, goldens()))
    for serving in (one for one in found.throughput if one.name not in gone):
        report.speeds.append(measurements.speed(job.name, job.about, serving, job.rows))
    judged = (measurements.score(job.name, row, scores) for row in job.rows)
    report.scores += [score for score in judged if score]
    facts = provenance.facts(job.folder, job.about, [record for _, record in al])
    report.provenance.append((job, facts))


def _notes(length: Length) -> Iterator[str]:
    name = length.name
    if length.lower is not None and length.upper is not None:
        yield (
            f"{name}: {length.acceptance_length:.4f}, 95 % interval {length.lower:.4f} to "
            f"{length.upper:.4f} over {length.requests} requests (clustered); "
            f"mean of the requests' own {length.mean_request:.4f}"
        )
    for note in length.notes:
        yield f"{name}: {note}"
