"""The verdicts that a report shows: of one run, or of every job below a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from utils.errors import NotMeasured, UsageError
from utils.evals import expected, job_identity, job_results, result_rows, validate_scores
from utils.evals.job_results import Jobs
from utils.evals.validate_scores import WORST_LAST, Options
from utils.records import Json
from utils.verdicts import Outcome, Verdict

COLLECTION = "collection"
HEADS = ("verdict", "cell", "check", "measured", "limits", "source of the limits")


@dataclass(frozen=True)
class Row:
    """One verdict. job: the folder that it is of; empty in a report on a single run."""

    job: str
    verdict: Verdict

    @property
    def outcome(self) -> Outcome:
        return self.verdict.outcome

    @property
    def name(self) -> str:
        """The cell, with its job where there are several."""
        return f"{self.job}: {self.verdict.cell}" if self.job else self.verdict.cell

    @property
    def texts(self) -> tuple[str, ...]:
        """A row under HEADS, but for the verdict."""
        return self.name, self.verdict.check, self.measured, self.limits, self.verdict.source or "—"

    @property
    def measured(self) -> str:
        return "—" if self.verdict.measured is None else f"{self.verdict.measured:.4f}"

    @property
    def limits(self) -> str:
        return self.verdict.limits() or "—"

    @property
    def why(self) -> str:
        return self.verdict.why()

    @property
    def line(self) -> str:
        """The verdict's line, as the gate prints it."""
        return replace(self.verdict, cell=self.name).line()


@dataclass
class Job:
    """One run's folder. about: what its plan.json, else its meta_env.json says.

    replaced: verdicts on cells of which another job has the later result.
    """

    name: str
    folder: Path
    about: Json
    rows: list[Row] = field(default_factory=list)
    replaced: list[Row] = field(default_factory=list)


def read(directory: Path, options: Options) -> tuple[list[Job], list[Row]]:
    """Every job with its verdicts, and the verdicts on the collection as a whole.

    Raises:
        UsageError: the directory, a thresholds or a golden file is unusable, or concurrencies are
            asked of several jobs at once.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory")
    folders = job_results.job_folders(directory)
    if folders in ([], [directory]):
        return [_job("", directory, options)], []
    if options.expected_concs is not None:
        raise UsageError(f"--expected-concs is for one run, and {directory} holds {len(folders)}")
    outer = {parent for folder in folders for parent in folder.parents}
    jobs = [
        _job(str(folder.relative_to(directory)), folder, options)
        for folder in folders
        if folder not in outer
    ]
    found = job_results.read(directory, options.thresholds, options.golden)
    cells = result_rows.cells(found)
    _set_aside(jobs, found, cells)
    return jobs, [*_undecided(cells), *_dropped(jobs, found)]


def _job(name: str, folder: Path, options: Options) -> Job:
    verdicts = validate_scores.validate(folder, options)
    return Job(name, folder, _about(folder), [Row(name, verdict) for verdict in verdicts])


def _about(folder: Path) -> Json:
    try:
        return job_identity.about(expected.load(folder, None, None, None))
    except NotMeasured:
        return {}  # the verdicts say so


def _set_aside(jobs: Sequence[Job], found: Jobs, cells: Sequence[result_rows.Cell]) -> None:
    """Move verdicts on cells that another job measured later out of the jobs' own."""
    chosen = {cell.first.key: cell.chosen for cell in cells if cell.chosen}
    latest = {
        (attempt.folder, attempt.name): attempt.key not in chosen
        or chosen[attempt.key].folder == attempt.folder
        for attempt in found.attempts
    }
    for job in jobs:
        mine = [stays for (folder, _), stays in latest.items() if folder == job.name]
        rows, job.rows = job.rows, []
        for row in rows:
            stays = latest.get((job.name, row.verdict.cell), any(mine) or not mine)
            (job.rows if stays else job.replaced).append(row)


def _undecided(cells: Sequence[result_rows.Cell]) -> Iterator[Row]:
    for cell in cells:
        if cell.attempts and cell.chosen is None:
            files = tuple(attempt.file for attempt in cell.attempts if attempt.file)
            detail = f"{cell.detail}: {', '.join(files)}"
            yield _unmeasured(cell.first.folder, cell.first.name, cell.reason, detail, files)


def _dropped(jobs: Sequence[Job], found: Jobs) -> Iterator[Row]:
    """Results that belong to no job; what is wrong inside a job, its own verdicts say."""
    for one in found.dropped:
        inside = any(Path(one.file).is_relative_to(job.name) for job in jobs)
        if one.is_result and not inside:
            yield _unmeasured("", one.file, "dropped", one.reason, (one.file,))


def _unmeasured(job: str, cell: str, reason: str, detail: str, files: tuple[str, ...]) -> Row:
    verdict = Verdict(
        Outcome.NOT_MEASURED, cell, COLLECTION, reason=reason, detail=detail, evidence=files
    )
    return Row(job, verdict)


def worst_first(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -WORST_LAST.index(row.outcome))
