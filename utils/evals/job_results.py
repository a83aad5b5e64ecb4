"""What the jobs below a folder measured: attempts at cells, each with its own verdict."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from utils import records
from utils.errors import NotMeasured
from utils.evals import evidence, expected, job_identity, thresholds, throughput_files
from utils.evals.evidence import META_ENV, PLAN
from utils.evals.expected import Expected
from utils.evals.join import Goldens, Join
from utils.evals.score_files import ScoreFile
from utils.evals.thresholds import Thresholds
from utils.golden import registry
from utils.records import Json
from utils.verdicts import Outcome, Verdict

MISSING = Verdict(Outcome.NOT_MEASURED, "", "", reason="missing")


@dataclass(frozen=True)
class Attempt:
    """A result of one cell, or, without a file, the lack of one.

    cell: what was measured: task and concurrency, or thinking and N, or lengths and concurrency.
    folder: of the job, relative to the root. time: unix seconds by the file itself; None where it
    doesn't say.
    """

    job: Json
    kind: str
    cell: Json
    file: str | None
    time: float | None
    run_id: str | None
    verdict: Verdict
    output_tokens_per_s: float | None = None
    folder: str = ""

    @property
    def key(self) -> str:
        return repr((sorted(self.job.items()), self.kind, sorted(self.cell.items())))

    @property
    def name(self) -> str:
        """The cell as the gate's verdict on it says it."""
        cell = self.cell
        if self.kind == "score":
            return f"{cell['task']} conc={cell['concurrency']}"
        if self.kind == "al":
            return "AL" if cell["n"] is None else f"AL {cell['thinking']} N={cell['n']}"
        lengths = cell["isl"], cell["osl"], cell["concurrency"]
        return throughput_files.cell_name(lengths)


@dataclass(frozen=True)
class Dropped:
    """An artifact that is in no row, and why."""

    file: str
    reason: str
    is_result: bool = True


@dataclass
class Jobs:
    """All jobs below a folder."""

    root: Path
    rules: Thresholds
    goldens: Goldens
    attempts: list[Attempt] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    @property
    def lost(self) -> bool:
        """Whether something was dropped that is or should have been a result."""
        return any(one.is_result for one in self.dropped)

    def relative(self, path: Path) -> str:
        return str(path.relative_to(self.root))


def read(root: Path, thresholds_file: Path, golden: Path) -> Jobs:
    """All attempts below a folder, and why every other JSON file there is none.

    Raises:
        UsageError: thresholds or goldens can't be read.
    """
    jobs = Jobs(root, thresholds.load(thresholds_file), cache(lambda: registry.load(golden)))
    folders = job_folders(root)
    for folder in folders:
        inner = [jobs.relative(other) for other in folders if folder in other.parents]
        if inner:
            _drop_all(jobs, folder, f"holds jobs of its own ({', '.join(inner)}): take them apart")
            continue
        try:
            _Job(jobs, folder).read()
        except NotMeasured as error:
            _drop_all(jobs, folder, str(error))
    known = {attempt.file for attempt in jobs.attempts} | {one.file for one in jobs.dropped}
    for path in sorted(root.rglob("*.json")):
        name = jobs.relative(path)
        if path.name in (PLAN, META_ENV) or name in known:
            continue
        if any(part.startswith(".") for part in Path(name).parts):
            jobs.dropped.append(Dropped(name, "in a hidden folder: left from work", False))
        else:
            text = "no plan.json or meta_env.json beside or above it tells which run it is of"
            jobs.dropped.append(Dropped(name, text))
    return jobs


def job_folders(root: Path) -> list[Path]:
    """Every folder with a plan.json or meta_env.json, the root included, by name."""
    return sorted(Path(f) for f, _, names in os.walk(root) if {PLAN, META_ENV} & set(names))


def _drop_all(jobs: Jobs, folder: Path, why: str) -> None:
    for path in sorted(folder.glob("*.json")):
        jobs.dropped.append(Dropped(jobs.relative(path), f"its job can't be read: {why}"))


class _Job:
    """One folder with a plan.json or meta_env.json, and everything below it."""

    def __init__(self, jobs: Jobs, folder: Path) -> None:
        self.jobs = jobs
        self.folder = folder
        self.asked = expected.load(folder, None, None, None)
        self.about = job_identity.about(self.asked)
        self.identity = job_identity.identity(self.about)
        self.join = Join(folder, self.asked, jobs.rules, jobs.goldens)
        self.found: list[Attempt] = []

    def read(self) -> None:
        found = evidence.gather(self.folder, "*.json", self.score)
        for name, record in found.al:
            cell = {"thinking": record["thinking_mode"], "n": record["num_speculative_tokens"]}
            verdict = self.join.judge_al("", record, (name,))
            self.add("al", cell, name, _time(record.get("run", {}).get("started")), verdict)
        for serving in found.throughput:
            cell = dict(zip(("isl", "osl", "concurrency"), serving.cell, strict=True))
            verdict = self.join.judge_throughput("", serving)
            time = _time(serving.said.get("started"))
            self.add("serving", cell, serving.name, time, verdict, serving.mean)
        self.sort_out()
        for name in found.ignored:
            self.drop(name, "no result of an eval or a benchmark", is_result=False)
        for problem in found.problems:
            self.drop(problem.cell, f"{problem.reason}: {problem.detail}")
        for problem in self.asked.problems:
            text = f"{problem.cell}: {problem.reason}: {problem.detail}"
            self.drop(next(iter(problem.evidence), META_ENV), text)

    def score(self, file: ScoreFile, logs: set[str]) -> None:
        for task in file.tasks:
            cell = {"task": task, "concurrency": file.concurrency}
            verdict = self.join.points.judge(file, task, logs)
            self.add("score", cell, file.name, file.started, verdict)

    def add(
        self,
        kind: str,
        cell: Json,
        name: str | None,
        time: float | None = None,
        verdict: Verdict = MISSING,
        rate: float | None = None,
    ) -> None:
        file = None if name is None else self.jobs.relative(self.folder / name)
        run_id = self.about.get("run_id")
        folder = self.jobs.relative(self.folder)
        self.found.append(
            Attempt(self.identity, kind, cell, file, time, run_id, verdict, rate, folder)
        )

    def sort_out(self) -> None:
        """Keep what was asked for, say what is missing, drop the rest."""
        came, self.found = self.found, []
        tasks = {attempt.cell["task"] for attempt in came if attempt.kind == "score"}
        any_al = any(attempt.kind == "al" for attempt in came)
        for kind, cell in self.wanted(tasks, any_al):
            self.add(kind, cell, None)
        context = _context(self.about, self.asked, came)
        came, wanted = (
            [replace(attempt, cell={**context, **attempt.cell}) for attempt in attempts]
            for attempts in (came, self.found)
        )
        there = {attempt.key for attempt in came}
        self.jobs.attempts += [attempt for attempt in wanted if attempt.key not in there]
        keys = {attempt.key for attempt in wanted}
        kinds = {attempt.kind for attempt in wanted}
        for attempt in came:
            if attempt.key in keys or not (self.asked.plan or attempt.kind in kinds):
                self.jobs.attempts.append(attempt)
            elif attempt.file:
                self.jobs.dropped.append(Dropped(attempt.file, "nobody asked for such a result"))

    def wanted(self, tasks: set[str], any_al: bool) -> Iterator[tuple[str, Json]]:
        """Every cell that should have come back."""
        for task, concurrency in sorted(self.join.points.wanted(tasks)):
            yield "score", {"task": task, "concurrency": concurrency}
        al = self.asked.cells("al")
        for cell in al:
            yield "al", {"thinking": cell["thinking"], "n": cell["num_speculative_tokens"]}
        if self.asked.al_required and not al and not any_al:
            yield "al", {"n": None}
        for cell in self.asked.cells("throughput"):
            yield "serving", {name: cell[name] for name in ("isl", "osl", "concurrency")}

    def drop(self, name: str, why: str, is_result: bool = True) -> None:
        file = self.jobs.relative(self.folder / name)
        self.jobs.dropped.append(Dropped(file, why, is_result))


def _context(about: Json, asked: Expected, came: Sequence[Attempt]) -> Json:
    """What of a cell is the job's, where the job has only one of it."""
    shapes = {(cell["isl"], cell["osl"]) for cell in asked.cells("throughput")}
    speculated = [(cell["thinking"], cell["num_speculative_tokens"]) for cell in asked.cells("al")]
    speculated += [(a.cell["thinking"], a.cell["n"]) for a in came if a.kind == "al"]
    lengths = (about.get(name) for name in ("isl", "osl"))
    said = [length if type(length) is int else None for length in lengths]  # others' may be text
    isl, osl = shapes.pop() if len(shapes) == 1 else said
    n = about.get("num_speculative_tokens")
    thinking, n = speculated[0] if len(set(speculated)) == 1 else (None, n)
    return {"isl": isl, "osl": osl, "thinking": thinking, "n": n}


def _time(text: str | None) -> float | None:
    try:
        return None if text is None else records.parse_time(text)
    except NotMeasured:
        return None  # the verdict says so
