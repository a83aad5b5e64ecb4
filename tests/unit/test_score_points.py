from __future__ import annotations

from typing import Any

import pytest

from utils.evals import findings, score_files
from utils.evals.expected import Expected
from utils.evals.score_points import ScorePoints
from utils.evals.thresholds import Thresholds
from utils.verdicts import Outcome, Verdict

STRICT, FLEXIBLE = "exact_match,strict-match", "exact_match,flexible-extract"
LIMITS = {"extraction_gap": 0.25, "unusable_answers": 0.1}


def judge(**scores: Any) -> Verdict:
    """A score against a threshold of 0.5, with extractions that may differ by 0.25."""
    row = {STRICT: scores.pop("strict"), **{f"exact_match,{k}": v for k, v in scores.items()}}
    data = {"results": {"t": row}, "n-samples": {"t": {"original": 4, "effective": 4}}}
    file = score_files.read("results_conc4.json", {**data, "config": {}})
    rows = {"t": {"samples": 4, "models": {"p": {"min_score": 0.5, "source": "s"}}}}
    points = ScorePoints(".", Expected(prefix="p"), Thresholds("f", LIMITS, rows, None))
    return points.judge(file, "t", set())


@pytest.mark.parametrize(
    ("scores", "outcome", "reason"),
    [
        ({"strict": 0.5}, Outcome.PASS, ""),
        ({"strict": 0.25}, Outcome.FAIL, "below_threshold"),
        ({"strict": 0.5, "flexible": 0.75}, Outcome.PASS, ""),
        ({"strict": 0.5, "flexible": 0.76}, Outcome.NOT_MEASURED, "extraction_parts"),
        ({"strict": 0.5, "flexible": 0.24}, Outcome.NOT_MEASURED, "extraction_parts"),
        ({"strict": 0.5, "a": 0.38, "b": 0.64}, Outcome.NOT_MEASURED, "extraction_parts"),
        ({"strict": 0.0, "flexible": 0.5}, Outcome.NOT_MEASURED, "extraction_parts"),
        ({"strict": 0.0, "flexible": 0.49}, Outcome.FAIL, "below_threshold"),
        ({"strict": 0.25, "flexible": 0.5}, Outcome.FAIL, "below_threshold"),
    ],
)
def test_extractions(scores: dict[str, float], outcome: Outcome, reason: str) -> None:
    verdict = judge(**scores)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert verdict.measured == scores["strict"]


def test_duplicates_are_named_up_to_a_point() -> None:
    four = findings.duplicate("c", "k", ["a", "b", "c", "d"])
    assert "4 results of one cell: a, b, c, d; keep" in four.detail
    five = findings.duplicate("c", "k", ["a", "b", "c", "d", "e"])
    assert "5 results of one cell: a, b, c, d and others; keep" in five.detail
    assert five.evidence == ("a", "b", "c", "d", "e")
