"""What an engine can do to an eval: the fault table, every row with real processes, all at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.decode import support
from utils.decode_eval import DecodeEvalRunner
from utils.records import Json

WEIGHTS = b"accept=0.7 of the draft tokens"


@dataclass(frozen=True)
class Fault:
    """modes: of the engine, for its first start alone. completed: prompts answered."""

    name: str
    reason: str | None
    text: str
    modes: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    completed: int | None = None


FAULTS = [  # those that take long come last: the others' second evals run meanwhile
    Fault("engine_ignores_term", None, "", {"ignore_term": True, "daemon": True}, completed=6),
    Fault("dies_mid_run", "engine_died", "ended with status 7", {"die_at": 5}),
    Fault("4xx_to_readiness", "engine_not_ready", "refuses the request", {"refuse": 400}),
    Fault("4xx_on_all", "no_generation", "HTTP 400", {"refuse": 400, "refuse_at": 2}),
    Fault(
        "5xx_on_some",
        "all_requests_succeeded",
        "3 of 6 succeeded",
        {"refuse": 500, "refuse_at": 3, "refuse_every": 2},
        completed=3,
    ),
    Fault(
        "stalls",
        "all_requests_succeeded",
        "1 of 6 succeeded",
        {"hang_at": 4},
        {"stall_s": 3.0},
        completed=1,
    ),
    Fault(
        "never_ready",
        "engine_not_ready",
        "nobody listens on port",
        {"never_ready": True, "ignore_term": True},
        {"boot_timeout_s": 6.0},
    ),
    Fault(
        "hangs_until_the_deadline",
        "timed_out",
        "timeout_s 12 s, at phase decode",
        {"hang_at": 4, "ignore_term": True},
        {"timeout_s": 12.0},
    ),
]


@dataclass
class Run:
    """One training with one fault, and what came of it. said: lines above INFO."""

    folder: Path
    runner: DecodeEvalRunner
    first: list[Json] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    second: list[Json] = field(default_factory=list)


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.kept: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record.getMessage())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Every fault beside a training of its own, then a second eval of each, without a fault."""
    lines, logger = Lines(), logging.getLogger("specgate.decode_eval")
    logger.addHandler(lines)
    found = {}
    for fault in FAULTS:
        folder = tmp_path_factory.mktemp(fault.name)
        modes = {**fault.modes, "once": str(folder / "once")}
        config = support.config(folder, modes, **fault.fields)
        found[fault.name] = Run(folder, DecodeEvalRunner(config, support.export))
    for run in found.values():
        assert run.runner.maybe_launch(0, WEIGHTS)
    for run in found.values():
        for step in range(1, 10):  # training: no step waits for the engine
            assert not run.runner.maybe_launch(step, WEIGHTS)
    for run in found.values():
        assert run.runner.wait(40)
        run.first, run.left = run.runner.collect(), support.engines(run.folder)
        run.said = [line for line in lines.kept if str(run.folder) in line]
        assert run.runner.maybe_launch(10, WEIGHTS)
    for run in found.values():
        assert run.runner.wait(40)
        run.second = run.runner.collect()
    yield found
    logger.removeHandler(lines)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_engine(fault: Fault, runs: dict[str, Run]) -> None:
    run = runs[fault.name]
    (row,) = run.first
    assert row["reason"] == fault.reason
    assert fault.text in (row["error"] or "")
    assert run.left == []
    if fault.completed is not None:
        assert [one["completed"] for one in row["sets"]] == [fault.completed]
    if fault.reason:
        assert (row["outcome"], row["acceptance_length"]) == ("failed", None)
        assert row["log_tail"]
        (line,) = run.said
        assert fault.reason in line and fault.text in line and "worker.log" in line
    (after,) = run.second
    assert (after["step"], after["outcome"]) == (10, "measured")
    assert after["acceptance_length"] > 1.5
