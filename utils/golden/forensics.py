"""Why an acceptance length misses its golden: causes, ranked, each with its evidence.

A pure function of record, goldens and plan. What it says is a lead, never a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utils import models, records
from utils.evals import al_record
from utils.golden import match
from utils.golden.case import Case
from utils.golden.hypotheses import HYPOTHESES, Hypothesis, Strength
from utils.golden.registry import Golden
from utils.records import Json

PLAN = "plan.json"
NO_GOLDEN = "its model has no golden of this mode and N"


@dataclass(frozen=True)
class Finding:
    """One cause that something speaks for, the strongest evidence first."""

    name: str
    strength: Strength
    evidence: tuple[str, ...]
    remedy: str

    def __str__(self) -> str:
        strength = self.strength.name.lower()
        return f"{self.name} ({strength}): {'; '.join(self.evidence)}. {self.remedy}."


def case_of(
    record: Json,
    goldens: Sequence[Golden],
    plan: Json | None = None,
    collections: Mapping[str, Json] | None = None,
) -> Case:
    """A record beside the golden of its mode and N that it departs from least."""
    mine = [golden for golden in goldens if golden.prefix == record["model_prefix"]]
    mode, n = record["thinking_mode"], record["num_speculative_tokens"]
    same = [golden for golden in mine if (golden.thinking, golden.n) == (mode, n)]
    nearest = min(same, key=lambda golden: len(match.differences(record, golden)), default=None)
    if nearest is None:
        return Case(record, plan or {})
    near = [golden for golden in mine if golden.file == nearest.file]
    rows = (collections or {}).values()
    return Case(
        record,
        plan or {},
        nearest,
        curve=[golden for golden in near if golden.thinking == mode],
        other_mode=[golden for golden in near if golden.thinking != mode and golden.n == n],
        settings=next((row["speculation"] for row in rows if row["golden"] == nearest.file), {}),
    )


def explain(case: Case) -> list[Finding]:
    """Causes that something speaks for, the best founded first."""
    found = [finding for hypothesis in HYPOTHESES if (finding := _look(hypothesis, case))]
    return sorted(found, key=lambda finding: -finding.strength)


def _look(hypothesis: Hypothesis, case: Case) -> Finding | None:
    evidence = sorted(hypothesis.find(case), key=lambda pair: -pair[0])
    if not evidence:
        return None
    texts = tuple(text for _, text in evidence)
    return Finding(hypothesis.name, evidence[0][0], texts, hypothesis.remedy)


def lines(case: Case) -> Iterator[str]:
    """The report: what is compared, the causes, and what nothing speaks for."""
    golden = case.golden
    has = f"AL {case.al:.4f}" if case.measured else f"no AL ({case.error})"
    wants = f"{golden} has {golden.acceptance_length:.4f}" if golden else NO_GOLDEN
    yield f"{has}; {wants}"
    found = explain(case)
    yield from (f"{number}. {finding}" for number, finding in enumerate(found, start=1))
    if not found:
        yield "nothing in the record stands out; read its outputs and the server's log"
    names = {finding.name for finding in found}
    silent = [hypothesis.name for hypothesis in HYPOTHESES if hypothesis.name not in names]
    yield f"nothing speaks for: {', '.join(silent)}"


def read(path: Path, goldens: Sequence[Golden], plan: Path | None = None) -> Case:
    """A case from files; the plan is the one beside the record unless another is named.

    Raises:
        NotMeasured: a file isn't what it should be.
        UsageError: models.yaml is unusable.
    """
    beside = plan or path.parent / PLAN
    asked = records.read_json(beside, "plan") if plan or beside.exists() else None
    collections = records.read_yaml(models.MODELS_FILE, "models").get("collections", {})
    return case_of(al_record.read(path), goldens, asked, collections)
