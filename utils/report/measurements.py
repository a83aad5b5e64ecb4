"""Accuracy and speed as a report shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from utils.evals import proportion, score_files
from utils.evals.score_files import ScoreFile
from utils.evals.throughput_files import Serving, cell_name
from utils.records import Json
from utils.report.board import Row
from utils.report.provenance import text
from utils.verdicts import Outcome

NO_SPECULATION = ("none", "", None)


@dataclass(frozen=True)
class Score:
    """Accuracy of one cell with its 95 % interval; samples: documents, None when not said."""

    job: str
    cell: str
    outcome: Outcome
    metric: str
    score: float | None
    samples: int | None
    lower: float | None
    upper: float | None
    threshold: float | None
    source: str
    protocol: Mapping[str, str]


@dataclass(frozen=True)
class Speed:
    """One serving result; tokens_per_s is per GPU in files of InferenceX.

    acceptance_length: of this load, which has no golden. gpu: power and energy as the record has
    them; None where it has nothing on them.
    """

    job: str
    cell: str
    outcome: Outcome
    about: Json
    tokens_per_s: float
    latencies: Json
    protocol: Mapping[str, str]
    acceptance_length: float | None
    gpu: Json | None


def score(job: str, row: Row, files: dict[str, ScoreFile]) -> Score | None:
    """The accuracy behind a verdict; None where it is on something else."""
    verdict = row.verdict
    file = next((files[name] for name in verdict.evidence if name in files), None)
    if file is None:
        return None
    task = verdict.cell.partition(" conc=")[0]
    counts = file.counts.get(task) if isinstance(file.counts, dict) else None
    samples = lower = upper = None
    if verdict.measured is not None and isinstance(counts, dict):
        samples = counts.get("effective")
    if verdict.measured is not None and samples:
        lower, upper = proportion.wilson(verdict.measured, samples)
    return Score(
        job=job,
        cell=verdict.cell,
        outcome=verdict.outcome,
        metric=verdict.check,
        score=verdict.measured,
        samples=samples,
        lower=lower,
        upper=upper,
        threshold=verdict.lower,
        source=verdict.source,
        protocol=_protocol(file, task, samples),
    )


def _protocol(file: ScoreFile, task: str, samples: int | None) -> dict[str, str]:
    said = zip(score_files.PROTOCOL, file.protocol.get(task, ()), strict=False)
    return {"documents": str(samples), **{name: text(value) for name, value in said}}


def speed(job: str, about: Json, serving: Serving, rows: Sequence[Row]) -> Speed:
    verdicts = [row for row in rows if serving.name in row.verdict.evidence]
    counts = serving.counts or {}
    return Speed(
        job=job,
        cell=cell_name(serving.cell),
        outcome=verdicts[0].outcome if verdicts else Outcome.NOT_MEASURED,
        about=about,
        tokens_per_s=serving.mean,
        latencies={name: dict(values) for name, values in serving.latencies.items()},
        protocol={name: str(counts[name]) for name in ("dataset", "client") if name in counts},
        acceptance_length=(counts.get("acceptance") or {}).get("acceptance_length"),
        gpu=counts.get("gpu"),
    )


def subject(about: Json) -> str:
    """What ran, in a few words: model, precision, hardware, engine, speculation."""
    names = ("model_prefix", "precision", "hw", "engine")
    words = [str(about[name]) for name in names if about.get(name)]
    method = about.get("spec_decoding")
    if method not in NO_SPECULATION:
        n = about.get("num_speculative_tokens")
        words.append(f"{method} N={n}" if n else str(method))
    return " ".join(words)
