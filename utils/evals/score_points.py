"""Scores by task and concurrency, each judged as it is read and then let go: runs may have many."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import cache
from typing import Any

from utils.errors import NotMeasured
from utils.evals import answers, findings, score_files
from utils.evals.expected import Expected
from utils.evals.provenance import ThisRun
from utils.evals.score_files import ScoreFile
from utils.evals.thresholds import Threshold, Thresholds
from utils.verdicts import Outcome, Verdict

Point = tuple[str, int]


class ScorePoints:
    """Verdicts on the points of one directory that came back."""

    def __init__(self, directory: str, asked: Expected, thresholds: Thresholds) -> None:
        self.directory = directory
        self.asked = asked
        self.run = ThisRun(asked)
        self.limits = thresholds.limits
        self.rule = cache(lambda task: thresholds.of(task, asked.prefix))
        self.judged: dict[Point, Verdict] = {}
        self.again: dict[Point, list[str]] = {}
        self.protocols: dict[str, tuple[str, tuple[Any, ...]]] = {}
        self.differing: list[Verdict] = []

    def take(self, file: ScoreFile, logs: Container[str]) -> None:
        """Judge every task of a file. logs: the names of lm-eval's logs of samples."""
        for task, protocol in file.protocol.items():
            point = task, file.concurrency
            if point in self.judged:
                self.again.setdefault(point, []).append(file.name)
            else:
                self.judged[point] = self.judge(file, task, logs)
            first, put = self.protocols.setdefault(task, (file.name, protocol))
            if protocol != put:
                differs = score_files.protocol_difference(put, protocol)
                text = f"{first} has {differs} of {file.name}; run all points in the same way"
                names = first, file.name
                self.differing.append(
                    findings.unmeasured(task, "protocol", "protocols_differ", text, names)
                )

    def verdicts(self) -> Iterator[Verdict]:
        """One for every point that was asked for or came back."""
        wanted = self.wanted({task for task, _ in self.judged})
        for point in sorted(wanted | self.judged.keys()):
            if (verdict := self.judged.get(point)) is None:
                yield findings.missing(_cell(*point), "score")
            elif others := self.again.get(point):
                names = (*verdict.evidence, *others)
                yield findings.duplicate(_cell(*point), "score", names)
            elif point in wanted or self.asked.says_nothing:
                yield verdict
            else:
                yield findings.unexpected(_cell(*point), "score", verdict.evidence)
        yield from self.differing

    def wanted(self, tasks: Iterable[str]) -> set[Point]:
        """By the plan; without one, every task that came back is due at every concurrency."""
        if self.asked.plan:
            return {(c["task"], c["concurrency"]) for c in self.asked.cells("score")}
        return {(t, conc) for t in tasks or {"score"} for conc in self.asked.concurrencies}

    def judge(self, file: ScoreFile, task: str, logs: Container[str]) -> Verdict:
        """A verdict on one task of one file, whatever else there is."""
        cell, metric, evidence = _cell(task, file.concurrency), "score", (file.name,)
        try:
            self.run.check(started=file.started, model=file.model)
            rule = self.rule(task)
            metric = rule.metric
            documents = score_files.check_samples(file, task, rule.samples)
            value = score_files.score(file, task, metric)
            if logs and (log := score_files.samples_log(file.name, task, logs)):
                path, most = f"{self.directory}/{log}", self.limits["unusable_answers"]
                answers.check(path, log, documents, most)
            others = score_files.other_extractions(file, task, metric)
        except NotMeasured as error:
            return findings.unmeasured(cell, metric, error.reason, str(error), evidence)
        outcome, reason, why = self._compare(value, rule, others)
        shown = ", ".join([f"{name} {other:.4f}" for name, other in others.items()])
        return Verdict(
            outcome,
            cell,
            metric,
            measured=value,
            lower=rule.min_score,
            source=rule.source,
            reason=reason,
            detail=f"{shown}; {why}" if shown and why else shown or why,
            evidence=evidence,
        )

    def _compare(
        self, value: float, rule: Threshold, others: dict[str, float]
    ) -> tuple[Outcome, str, str]:
        """Outcome, reason and remedy; extractions that part leave a verdict only if all fail."""
        every = [value, *others.values()]
        gap, most = max(every) - min(every), self.limits["extraction_gap"]
        if not gap <= most and max(every) >= rule.min_score:
            why = (
                f"extractions part by {gap:.4f}, at most {most:g} is sound: the answers' format "
                "is off; look at chat template and stop strings"
            )
            return Outcome.NOT_MEASURED, "extraction_parts", why
        if value >= rule.min_score:
            return Outcome.PASS, "", ""
        why = "read the answers in the samples file before you blame the model"
        return Outcome.FAIL, "below_threshold", why


def _cell(task: str, concurrency: int) -> str:
    return f"{task} conc={concurrency}"
