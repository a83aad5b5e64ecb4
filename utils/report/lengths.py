"""Acceptance lengths as a report shows them: recomputed from records, beside their goldens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from utils.errors import HarnessError, NotMeasured
from utils.evals import al_record
from utils.golden import cell_test, gate, match
from utils.golden.registry import Registry
from utils.records import Json
from utils.report.board import Row
from utils.report.provenance import text
from utils.verdicts import Outcome

# Goldens are published for up to 8; a band for every N that somebody may have measured.
LONGEST_DRAFT = 16


@dataclass(frozen=True)
class Band:
    """What the gate lets pass for one N: inclusive limits about a golden."""

    n: int
    reference: float
    lower: float
    upper: float
    golden: str


@dataclass(frozen=True)
class Length:
    """One AL record. family: what its curve over N is of. bands: of the goldens for every N.

    judged: the gate takes its AL for measured, golden or not. protocol: how it was measured, equal
    in all that may be compared. provenance: on what. looks: as a record that could stop early tells
    them.

    The rest as in acceptance.estimate.Estimate, None and empty where the record has no figures;
    rows are (accepted, steps), one a request; exact when there is one for every prompt and they
    come to the counters' totals.
    """

    job: str
    cell: str
    outcome: Outcome
    file: str
    n: int
    family: str
    bands: tuple[Band, ...]
    judged: bool = False
    protocol: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    acceptance_length: float | None = None
    lower: float | None = None
    upper: float | None = None
    mean_request: float | None = None
    requests: int = 0
    per_position: tuple[float, ...] = ()
    conditional: tuple[float | None, ...] = ()
    rows: tuple[tuple[int, int], ...] = ()
    rows_are_exact: bool = False
    looks: tuple[Json, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.job}: {self.cell}" if self.job else self.cell


@dataclass(frozen=True)
class Curve:
    """AL over N of one model, method and mode: what was measured, and what the goldens allow."""

    family: str
    bands: tuple[Band, ...]
    lengths: tuple[Length, ...]


def read(job: str, file: str, record: Json, rows: Sequence[Row], goldens: Registry) -> Length:
    """One record; what is wrong with it, its verdict among the rows says."""
    verdicts = [row for row in rows if file in row.verdict.evidence]
    length = Length(
        job=job,
        cell=gate.cell(record),
        outcome=verdicts[0].outcome if verdicts else Outcome.NOT_MEASURED,
        file=file,
        n=record["num_speculative_tokens"],
        family=_family(record),
        bands=tuple(_bands(record, goldens)),
        judged=bool(verdicts) and verdicts[0].verdict.measured is not None,
        protocol={name: text(value) for name, value in match.key_of(record).items()},
        provenance=_provenance(record),
        looks=tuple(record.get("early", {}).get("looks", ())),
    )
    if record[al_record.VERSION_KEY] != al_record.VERSION:
        return _version_1(length, record)
    return _recomputed(length, record)


def curves(lengths: Sequence[Length]) -> list[Curve]:
    """Lengths by family; those of one name but other goldens are other curves."""
    groups: dict[tuple[str, tuple[Band, ...]], list[Length]] = {}
    for length in lengths:
        groups.setdefault((length.family, length.bands), []).append(length)
    return [Curve(*key, tuple(group)) for key, group in sorted(groups.items(), key=repr)]


def _family(record: Json) -> str:
    spoken = record.get("speculation", {})
    words = (
        record.get("model_prefix") or record.get("model"),
        spoken.get("method"),
        spoken.get("draft_model"),
        f"thinking {record['thinking_mode']}",
        "proxy prompts" if record.get("workload", {}).get("proxy") else None,
    )
    return ", ".join(str(word) for word in words if word)


def _provenance(record: Json) -> dict[str, str]:
    server = record.get("server", {})
    said = {name: server.get(name) for name in ("engine_version", "image")}
    return {name: value for name, value in said.items() if value is not None}


def _bands(record: Json, goldens: Registry) -> Iterator[Band]:
    """The gate's limits for the record, and for what it would be with every other N."""
    share = goldens.tolerances["sample"]["min_share"]["value"]
    for n in range(1, LONGEST_DRAFT + 1):
        try:
            golden = match.find({**record, "num_speculative_tokens": n}, goldens.goldens, share)
        except NotMeasured:
            continue  # no golden for this N
        reference = golden.acceptance_length
        allowed = cell_test.limits(reference, goldens.tolerances)
        yield Band(n, reference, allowed.lower, allowed.upper, str(golden))


def _version_1(length: Length, record: Json) -> Length:
    try:
        found = al_record.figures(record)
    except HarnessError:
        return length  # its verdict says why
    return replace(length, acceptance_length=found.acceptance_length)


def _recomputed(length: Length, record: Json) -> Length:
    try:
        figures = al_record.figures(record)
        _, _, derived = al_record.rederive(record)
    except HarnessError:
        return replace(length, notes=tuple(_notes(record, ())))
    found = derived.estimate
    return replace(
        length,
        acceptance_length=found.acceptance_length,
        lower=found.lower,
        upper=found.upper,
        mean_request=found.mean_request_acceptance_length,
        requests=found.requests_with_steps,
        per_position=found.per_position,
        conditional=found.conditional,
        rows=figures.rows,
        rows_are_exact=figures.rows_are_exact
        and len(figures.rows) == record["workload"]["prompts"],
        notes=tuple(_notes(record, [check.as_json() for check in derived.checks])),
    )


def _notes(record: Json, checks: Sequence[Json]) -> Iterator[str]:
    """What a reader of the AL must know beside the verdict."""
    workload = record["workload"]
    if workload["proxy"]:
        dataset, prompts = workload["dataset"], workload["prompts"]
        yield f"prompts are a proxy ({dataset}, {prompts} prompts), not SPEED-Bench"
    for check in checks or record.get("checks") or ():
        if check["ok"] is False:
            yield f"{check['name']}: {check['measured']}, want {check['expected']}"
