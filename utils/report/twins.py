"""Jobs of a sweep that differ in speculation alone, compared as `utils.recipes compare` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from utils.errors import HarnessError
from utils.evals import job_identity
from utils.recipes import compare
from utils.report.board import Job
from utils.report.measurements import NO_SPECULATION, subject
from utils.verdicts import Verdict

OF_SPECULATION = ("spec_decoding", "draft_model")


@dataclass(frozen=True)
class Twins:
    """A job and its twin without speculation. refused: why they can't be compared, else empty."""

    subject: str
    base: str
    speculated: str
    verdicts: tuple[Verdict, ...]
    refused: str = ""


def find(jobs: Sequence[Job]) -> Iterator[Twins]:
    """Every job that speculates, with each job that is like it in all else."""
    known = [job for job in jobs if job.about]
    plain = [job for job in known if job.about.get("spec_decoding") in NO_SPECULATION]
    for job in known:
        if job in plain:
            continue
        for base in plain:
            if _rest(base) == _rest(job):
                yield _compared(base, job)


def _compared(base: Job, job: Job) -> Twins:
    about, names = subject(job.about), (base.name, job.name)
    try:
        sides = compare.load(base.folder), compare.load(job.folder)
        compare.refuse_other_protocol(*sides)
        return Twins(about, *names, tuple(compare.verdicts(*sides)))
    except HarnessError as error:
        return Twins(about, *names, (), str(error))


def _rest(job: Job) -> list[tuple[str, str]]:
    """What twins share: all but speculation, and the cells that aren't about it."""
    identity = job_identity.identity(job.about)
    cells = [cell for cell in job.about.get("cells", ()) if cell["kind"] != "al"]
    shared = {name: v for name, v in identity.items() if name not in OF_SPECULATION}
    return sorted((name, str(value)) for name, value in {**shared, "cells": cells}.items())
