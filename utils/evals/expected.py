"""What must come back from a run: by its plan, by CI's own copy, and by meta_env.json."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import NotMeasured, UsageError
from utils.evals.evidence import META_ENV, PLAN, unusable
from utils.records import Json
from utils.verdicts import Outcome, Verdict

NO_SPECULATION = ("none", "")


@dataclass
class Expected:
    """What was asked for; None where nobody says.

    concurrencies: of scores; empty when nobody says. scores, al, throughput: the plan's cells.
    started: unix seconds. problems: what the sources say against each other.
    """

    plan: Json | None = None
    meta: Json | None = None
    concurrencies: tuple[int, ...] = ()
    prefix: str | None = None
    spec_decoding: str | None = None
    run_id: str | None = None
    started: float | None = None
    problems: list[Verdict] = field(default_factory=list)

    def cells(self, kind: str) -> list[Json]:
        return [cell for cell in self.plan["cells"] if cell["kind"] == kind] if self.plan else []

    @property
    def says_nothing(self) -> bool:
        return self.plan is None and not self.concurrencies

    @property
    def judges_throughput(self) -> bool:
        """A plan without serving cells leaves such results to others; nobody's word takes all."""
        return self.plan is None or bool(self.cells("throughput"))

    @property
    def speculates(self) -> bool:
        return self.spec_decoding is not None and self.spec_decoding not in NO_SPECULATION

    @property
    def al_required(self) -> bool:
        """Speculation is judged wherever accuracy is; a plan of throughput alone has neither."""
        return self.speculates and (self.plan is None or bool(self.cells("score")))


def load(
    directory: Path, meta_env: Path | None, asked: Sequence[int] | None, prefix: str | None
) -> Expected:
    """Bring the sources together; where they differ, the difference is a verdict.

    Raises:
        UsageError: meta_env was named and isn't there.
    """
    if meta_env and not meta_env.is_file():
        raise UsageError(f"--meta-env {meta_env}: no such file")
    found = Expected()
    found.plan = _read(found, directory / PLAN, "plan")
    found.meta = _read(found, meta_env or directory / META_ENV, None)
    plan, meta = found.plan or {}, found.meta or {}
    found.prefix = _agreed(
        found,
        "model prefix",
        {
            "--model-prefix": prefix,
            PLAN: plan.get("model_prefix"),
            META_ENV: meta.get("infmax_model_prefix"),
        },
    )
    for name in ("spec_decoding", "run_id"):
        value = _agreed(found, name, {PLAN: plan.get(name), META_ENV: meta.get(name)})
        setattr(found, name, value)
    found.started = _started(found, plan, meta)
    _concurrencies(found, asked)
    return found


def _read(found: Expected, path: Path, schema: str | None) -> Json | None:
    """A source of expectations; one that is there and can't be used is a verdict, not absence."""
    if not os.path.lexists(path):  # a link that leads nowhere is there
        return None
    try:
        data = records.read_json(path)
    except NotMeasured as error:
        text = str(error).removeprefix(f"{path}: ")
        text = f"{text}; its run writes it, start that again"
        found.problems.append(unusable(path.name, NotMeasured(text, "unreadable")))
        return None
    problem = records.schema_problem(data, schema) if schema else _meta_problem(data)
    if problem:
        text = f"{problem}; its run writes it, start that again"
        found.problems.append(unusable(path.name, NotMeasured(text, "wrong_shape")))
        return None
    return dict(data)


def _meta_problem(data: Any) -> str | None:
    """Only what is used here is checked: other tools' files carry more, and may grow."""
    if not isinstance(data, dict):
        return "not an object"
    for name in ("infmax_model_prefix", "spec_decoding", "run_id", "started"):
        if not isinstance(data.get(name), str | None):
            return f"{name} is {data[name]!r}, not a text"
    for name in ("eval_concs", "completed_eval_concs", "failed_eval_concs"):
        values = data.get(name)
        if values is None:
            continue
        if not (isinstance(values, list) and all(_is_concurrency(value) for value in values)):
            return f"{name} is {values!r}, not a list of concurrencies"
        if len(set(values)) != len(values):
            return f"{name} is {values!r}: one comes twice"
    return None


def _is_concurrency(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _agreed(found: Expected, what: str, said: Mapping[str, str | None]) -> str | None:
    """The first source's word; another one that says otherwise is a problem."""
    told = {source: value for source, value in said.items() if value is not None}
    if len(set(told.values())) > 1:
        found.problems.append(_differ(what, {s: repr(v) for s, v in told.items()}))
    return next(iter(told.values()), None)


def _differ(what: str, told: Mapping[str, str]) -> Verdict:
    return Verdict(
        Outcome.NOT_MEASURED,
        what,
        "agreement",
        reason="sources_differ",
        detail="; ".join(f"{source} says {value}" for source, value in told.items())
        + "; correct the one that is wrong",
        evidence=tuple(source for source in told if not source.startswith("--")),
    )


def _started(found: Expected, plan: Json, meta: Json) -> float | None:
    for source, data in ((PLAN, plan), (META_ENV, meta)):
        if data.get("started") is None:
            continue
        try:
            return records.parse_time(data["started"])
        except NotMeasured as error:
            found.problems.append(unusable(source, NotMeasured(str(error), "wrong_shape")))
    return None


def _concurrencies(found: Expected, asked: Sequence[int] | None) -> None:
    """Plan, then CI's own copy, then meta_env.json; all that speak must say the same."""
    told: dict[str, list[int]] = {}
    if found.plan:
        told[PLAN] = sorted({cell["concurrency"] for cell in found.cells("score")})
    if asked is not None:
        told["--expected-concs"] = sorted(asked)
    if found.meta and (manifest := _manifest(found.meta, told)):
        told[META_ENV] = manifest
    if len({tuple(values) for values in told.values()}) > 1:
        words = {source: " ".join(map(str, v)) or "none" for source, v in told.items()}
        found.problems.append(_differ("concurrencies", words))
    found.concurrencies = tuple(next(iter(told.values()), ()))
    if found.meta:
        found.problems += _failed_points(found.meta)


def _manifest(meta: Json, told: Mapping[str, Sequence[int]]) -> list[int] | None:
    """Concurrencies by meta_env.json. Its `conc` is the eval's only where there is one point."""
    if meta.get("eval_concs") is not None:
        return sorted(meta["eval_concs"])
    if told.get(PLAN) == [] or not _is_concurrency(meta.get("conc")):
        return None
    return [meta["conc"]]


def _failed_points(meta: Json) -> list[Verdict]:
    """Points of a batch that its own manifest does not call completed."""
    points = meta.get("eval_concs") or []
    failed = set(meta.get("failed_eval_concs") or [])
    completed = set(meta.get("completed_eval_concs") or []) - failed
    verdicts = []
    for conc in sorted({*points, *failed} - completed):
        word = "failed" if conc in failed else "not completed"
        verdicts.append(
            Verdict(
                Outcome.NOT_MEASURED,
                f"conc={conc}",
                "batch",
                reason="failed_point",
                detail=f"{META_ENV} calls this point {word}; see its lm_eval log, run it again",
                evidence=(META_ENV,),
            )
        )
    for conc in sorted(completed - set(points)):
        verdicts.append(
            _differ(f"conc={conc}", {"completed_eval_concs": "done", "eval_concs": "not asked"})
        )
    return verdicts
