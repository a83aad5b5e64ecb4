"""The join of what was asked for and what came back: a verdict for every cell of either side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import NotMeasured
from utils.evals import score_files, throughput_files
from utils.evals.evidence import PLAN, Evidence
from utils.evals.expected import Expected
from utils.evals.score_files import ScoreFile
from utils.evals.thresholds import Thresholds
from utils.golden.registry import Registry
from utils.records import Json
from utils.verdicts import Outcome, Verdict

Goldens = Callable[[], Registry]


class Join:
    """One directory's verdicts."""

    def __init__(
        self, directory: Path, asked: Expected, thresholds: Thresholds, goldens: Goldens
    ) -> None:
        self.directory = directory
        self.asked = asked
        self.thresholds = thresholds
        self.goldens = goldens

    def verdicts(self, found: Evidence) -> list[Verdict]:
        asked = self.asked
        verdicts = [*asked.problems, *found.problems]
        if asked.says_nothing and not asked.problems:
            verdicts.append(_unplanned())
        if asked.plan and asked.plan["synthetic_acceptance"] and asked.cells("score"):
            verdicts.append(_synthetic())
        verdicts += self._scores(found.scores)
        verdicts += self._al(found.al)
        if asked.cells("throughput"):
            verdicts += self._throughput(found.throughput)
        return verdicts

    def _scores(self, files: Sequence[ScoreFile]) -> Iterator[Verdict]:
        there = _by_key(((task, f.concurrency), f) for f in files for task in f.tasks)
        wanted = self._wanted_scores({task for task, _ in there})
        for task, conc in sorted(wanted | there.keys()):
            cell, group = f"{task} conc={conc}", there.get((task, conc), [])
            names = self._names(file.path for file in group)
            due = (task, conc) in wanted or self.asked.says_nothing
            if odd := _odd_one(cell, "score", names, due):
                yield odd
                continue
            yield self._judge_score(cell, group[0], task, names)

    def _wanted_scores(self, tasks: set[str]) -> set[tuple[str, int]]:
        """By the plan; without one, every task that came back is due at every concurrency."""
        if self.asked.plan:
            return {(c["task"], c["concurrency"]) for c in self.asked.cells("score")}
        return {(t, conc) for t in tasks or {"score"} for conc in self.asked.concurrencies}

    def _judge_score(
        self, cell: str, file: ScoreFile, task: str, evidence: tuple[str, ...]
    ) -> Verdict:
        metric = "score"
        try:
            self._of_this_run(started=file.started, model=file.model)
            rule = self.thresholds.of(task, self.asked.prefix)
            metric = rule.metric
            documents = score_files.check_samples(file, task, rule.samples)
            value = score_files.score(file, task, metric)
            score_files.check_answers(file, task, documents)
        except NotMeasured as error:
            return _unmeasured(cell, metric, error.reason, str(error), evidence)
        passed = value >= rule.min_score
        others = score_files.other_extractions(file, task, metric)
        advice = "read the answers in the samples file before you blame the model"
        return Verdict(
            Outcome.PASS if passed else Outcome.FAIL,
            cell,
            metric,
            measured=value,
            lower=rule.min_score,
            source=rule.source,
            reason="" if passed else "below_threshold",
            detail=others if passed else "; ".join(filter(None, (others, advice))),
            evidence=evidence,
        )

    def _al(self, files: Sequence[tuple[Path, Json]]) -> Iterator[Verdict]:
        there = _by_key(
            ((r["thinking_mode"], r["num_speculative_tokens"]), (path, r)) for path, r in files
        )
        cells = self.asked.cells("al")
        wanted = {(cell["thinking"], cell["num_speculative_tokens"]) for cell in cells}
        forbidden = self.asked.spec_decoding is not None and not self.asked.al_required
        if self.asked.al_required and not (wanted or there):
            method = self.asked.spec_decoding
            text = f"the run speculates ({method}), but there is no AL record; run the AL eval"
            yield _unmeasured("AL", "acceptance_length", "missing", text, ())
        for thinking, n in sorted(wanted | there.keys()):
            cell, group = f"AL {thinking} N={n}", there.get((thinking, n), [])
            names = self._names(path for path, _ in group)
            due = (thinking, n) in wanted or not (wanted or forbidden)
            odd = _odd_one(cell, "acceptance_length", names, due)
            yield odd or self._judge_al(cell, group[0][1], names)

    def _judge_al(self, cell: str, record: Json, evidence: tuple[str, ...]) -> Verdict:
        from utils.golden import gate

        run = record.get("run", {})
        try:
            self._of_this_run(
                started=_time(run.get("started")),
                run_id=run.get("run_id"),
                commit=run.get("commit"),
                # Version 1 may leave the prefix out; the golden's own match looks at the name then.
                prefix=record.get("model_prefix") or self.asked.prefix,
                method=record.get("speculation", {}).get("method"),
            )
        except NotMeasured as error:
            return _unmeasured(cell, "acceptance_length", error.reason, str(error), evidence)
        return replace(gate.judge(record, self.goldens()).verdict, evidence=evidence)

    def _throughput(self, files: Sequence[tuple[Path, Json]]) -> Iterator[Verdict]:
        there = _by_key((throughput_files.cell_of(data), (path, data)) for path, data in files)
        cells = self.asked.cells("throughput")
        wanted = {throughput_files.cell_of(cell) for cell in cells}
        for key in sorted(wanted | there.keys()):
            cell = "serving isl={} osl={} conc={}".format(*key)
            group = there.get(key, [])
            names = self._names(path for path, _ in group)
            odd = _odd_one(cell, throughput_files.CHECK, names, key in wanted)
            yield odd or self._judge_throughput(cell, group[0][1], names)

    def _judge_throughput(self, cell: str, data: Json, evidence: tuple[str, ...]) -> Verdict:
        try:
            self._of_this_run(
                started=_time(data["started"]), run_id=data["run_id"], prefix=data["model_prefix"]
            )
        except NotMeasured as error:
            return _unmeasured(cell, throughput_files.CHECK, error.reason, str(error), evidence)
        return throughput_files.judge(data, cell, evidence)

    def _of_this_run(self, *, started: float | None, **said: Any) -> None:
        """That a result was made by this run, for this model: by what is in it, never by mtime.

        Raises:
            NotMeasured: it is older, of another run or model, or doesn't say.
        """
        asked, plan = self.asked, self.asked.plan or {}
        if asked.started is not None:
            if started is None:
                raise NotMeasured("it doesn't say when it was measured", "stale")
            if not started >= asked.started:
                raise NotMeasured(
                    f"measured {records.format_time(started)}, before this run began "
                    f"({records.format_time(asked.started)}): a leftover",
                    "stale",
                )
        for name, wanted, reason in (
            ("run_id", asked.run_id, "other_run"),
            ("commit", plan.get("commit"), "other_run"),
            ("prefix", asked.prefix, "other_model"),
            ("model", plan.get("model"), "other_model"),
            ("method", plan.get("spec_decoding"), "other_method"),
        ):
            if name in said and wanted is not None and said[name] != wanted:
                raise NotMeasured(f"its {name} is {said[name]}, this run's {wanted}", reason)

    def _names(self, paths: Iterator[Path]) -> tuple[str, ...]:
        return tuple(str(path.relative_to(self.directory)) for path in paths)


def _by_key(pairs: Iterator[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    table: dict[Any, list[Any]] = {}
    for key, value in pairs:
        table.setdefault(key, []).append(value)
    return table


def _odd_one(cell: str, check: str, names: Sequence[str], due: bool) -> Verdict | None:
    """A verdict for every number of files but one, and for one that nobody asked for."""
    evidence = tuple(names)
    if not names:
        return _unmeasured(cell, check, "missing", "no result came back; see the log", evidence)
    if len(names) > 1:
        text = f"{len(names)} results of one cell: {', '.join(names)}; keep the valid one"
        return _unmeasured(cell, check, "duplicate", text, evidence)
    if not due:
        text = f"{names[0]} was not asked for; ask for it, or find out whose it is"
        return _unmeasured(cell, check, "unexpected", text, evidence)
    return None


def _unmeasured(
    cell: str, check: str, reason: str, detail: str, evidence: tuple[str, ...]
) -> Verdict:
    return Verdict(
        Outcome.NOT_MEASURED, cell, check, reason=reason, detail=detail, evidence=evidence
    )


def _unplanned() -> Verdict:
    text = "nobody says what was to be measured: give --expected-concs, or a plan or meta_env.json"
    return _unmeasured("run", "plan", "no_plan", text, ())


def _synthetic() -> Verdict:
    text = "the plan forces acceptance; evals never run with it"
    return _unmeasured("run", "plan", "synthetic_acceptance", text, (PLAN,))


def _time(text: str | None) -> float | None:
    return None if text is None else records.parse_time(text)
