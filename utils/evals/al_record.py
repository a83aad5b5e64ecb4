"""The AL record: its parts, its reading, and its figures recomputed from what was observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utils import errors, records
from utils.errors import NotMeasured
from utils.records import Json

# Imported where they are used: a validator that finds no AL record must start fast.
if TYPE_CHECKING:
    from utils.acceptance import measure
    from utils.acceptance.checks import Asked, Readback
    from utils.acceptance.client import Answer

VERSION = 2
TASK = "speedbench_al"
VERSION_KEY = "speedbench_al_eval_version"
# Version 1 files round the AL to four decimals.
SAME_AL = 1e-3


@dataclass(frozen=True)
class Figures:
    """What a record's observations come to.

    rows: (accepted, steps) per request, empty when unknown. standard_error: of the AL, clustered
    by request. version: of the record they came from.
    """

    version: int
    acceptance_length: float
    accepted: int
    steps: int
    per_position: tuple[int, ...]
    standard_error: float | None
    rows: tuple[tuple[int, int], ...]

    @property
    def rows_are_exact(self) -> bool:
        """Rows from stream chunks miss what was cut off the last step of a request."""
        return [sum(column) for column in zip(*self.rows, strict=True)] == [
            self.accepted,
            self.steps,
        ]


def is_al_record(data: Any) -> bool:
    """Recognised by content; a file's name decides nothing."""
    return isinstance(data, dict) and VERSION_KEY in data


def file_name(thinking: str, draft_length: int) -> str:
    return f"results_speedbench_al_{thinking}_mtp{draft_length}.json"


def read(path: Path) -> Json:
    """One AL record, of any version, checked against its schema.

    Raises:
        NotMeasured: unreadable, not an AL record, unknown version, or it breaks its schema.
    """
    return checked(path, records.read_json(path))


def checked(path: Path, data: Any) -> Json:
    """What was read from path, if it is an AL record.

    Raises:
        NotMeasured: as read().
    """
    if not is_al_record(data):
        raise NotMeasured(f"{path} is not an AL record: it has no {VERSION_KEY}", "wrong_shape")
    version = data[VERSION_KEY]
    if isinstance(version, bool) or version not in (1, VERSION):
        raise NotMeasured(
            f"{path}: {VERSION_KEY} is {version!r}; 1 and {VERSION} are known", "unknown_version"
        )
    if problem := records.schema_problem(data, f"al_record_v{int(version)}"):
        raise NotMeasured(f"{path}: {problem}", "wrong_shape")
    return dict(data)


@errors.reading("the record")
def figures(record: Json) -> Figures:
    """Recompute a record's figures; `passed` and the stored AL are never believed.

    Raises:
        NotMeasured: the attempt failed, a check is broken, or a stored figure differs from what
            the observations come to.
    """
    if record.get("error"):
        raise NotMeasured(record["error"], record.get("reason") or "measurement_failed")
    found = _recomputed(record) if record[VERSION_KEY] == VERSION else _counted(record)
    _same("acceptance_length", record["acceptance_length"], found.acceptance_length)
    _same("accepted_tokens", record.get("accepted_tokens"), found.accepted)
    _same("verify_steps", record.get("verify_steps"), found.steps)
    most = record["num_speculative_tokens"] + 1
    if not 1.0 <= found.acceptance_length <= most:
        raise NotMeasured(
            f"AL {found.acceptance_length:.4f} is impossible, it lies in 1..{most}", "impossible"
        )
    proposed = record.get("proposed_draft_tokens")
    if proposed is not None and not found.accepted <= proposed:
        raise NotMeasured(
            f"{found.accepted} draft tokens accepted of {proposed} proposed", "contradicts_itself"
        )
    return found


def _counted(record: Json) -> Figures:
    """Version 1 carries totals only."""
    from utils.acceptance.estimate import acceptance_length

    accepted, steps = record.get("accepted_tokens"), record.get("verify_steps")
    if accepted is None or steps is None:
        raise NotMeasured("the version 1 file has no counts to recompute the AL from", "no_counts")
    return Figures(1, acceptance_length(accepted, steps), accepted, steps, (), None, ())


def _recomputed(record: Json) -> Figures:
    from utils.acceptance import engines, measure

    asked, answers, derived = rederive(record)
    if derived.broken:
        first = derived.broken[0]
        raise NotMeasured(str(first), first.name)
    counts, sampling = derived.counts, record["workload"]["sampling"]
    _same("temperature", record["temperature"], sampling["temperature"])
    if counts.drafted is not None:
        _same("proposed_draft_tokens", record["proposed_draft_tokens"], counts.drafted)
    return Figures(
        version=VERSION,
        acceptance_length=derived.estimate.acceptance_length,
        accepted=counts.accepted,
        steps=counts.steps,
        per_position=counts.per_position or (),
        standard_error=derived.estimate.standard_error,
        rows=()
        if "log_windows" in record["raw"]  # logs tell requests apart no more than counters do
        else tuple(measure.request_rows(engines.load(record["framework"]), asked.method, answers)),
    )


@errors.reading("the record")
def rederive(record: Json) -> tuple[Asked, list[Answer], measure.Derived]:
    """Run the instrument's arithmetic again on a version 2 record's raw part.

    Raises:
        NotMeasured: the raw part is missing or doesn't make a window.
    """
    from utils.acceptance import engines, log_windows, measure, window
    from utils.acceptance.client import Answer, Pace

    raw = record["raw"]
    if not has_window(record):
        raise NotMeasured("the record has no complete window", "no_window")
    asked = asked_of(record)
    answers = [Answer.from_json(row) for row in raw["requests"]]
    pace = Pace(**raw["client"]) if raw.get("client") else None
    if "log_windows" in raw:
        log = log_windows.LogWindows.from_json(raw["log_windows"])
        derived = log_windows.derive(asked, log, answers, readback_of(record), pace)
        return asked, answers, derived
    derived = measure.derive(
        engines.load(record["framework"]),
        asked,
        window.Scrape.from_json(raw["before"]),
        window.Scrape.from_json(raw["after"]),
        answers,
        readback_of(record),
        pace,
    )
    return asked, answers, derived


def has_window(record: Json) -> bool:
    """Whether a version 2 record's raw part holds what figures can be made of."""
    raw = record["raw"]
    scraped = raw["before"] is not None and raw["after"] is not None
    return scraped != ("log_windows" in raw)  # of both, nobody knows which was meant


def asked_of(record: Json) -> Asked:
    from utils.acceptance.checks import Asked

    prompts = record["workload"]["prompts"]
    requests = record["workload"].get("requests", prompts)
    return Asked(
        draft_length=record["num_speculative_tokens"],
        method=record["speculation"]["method"],
        thinking=record["thinking_mode"],
        # Of a prompt there may be several turns; only who may stop early sends fewer.
        prompts=requests if "early" in record else max(requests, prompts),
        output_len=record["output_len"],
    )


def readback_of(record: Json) -> Readback:
    """What the server said; a record that lacks it was written before it was asked for."""
    from utils.acceptance.checks import Readback

    server = record["server"]
    return Readback(
        varying=tuple(server.get("varying_draft_length", ())),
        forced_lengths=tuple(server.get("forced_acceptance_lengths", ())),
        prefix_caching=server.get("prefix_caching"),
        drafts_per_step=server.get("drafts_per_step"),
    )


def fill(record: Json, derived: measure.Derived) -> None:
    """Put figures and checks into a record; a broken check becomes its error."""
    counts, found = derived.counts, derived.estimate
    record.update(
        acceptance_length=found.acceptance_length,
        accepted_tokens=counts.accepted,
        verify_steps=counts.steps,
        proposed_draft_tokens=counts.drafted,
        metric_source=derived.tally.source,
        quantity=derived.tally.quantity,
        estimate=found.as_json(),
        checks=[check.as_json() for check in derived.checks],
    )
    if derived.broken:
        record.update(error=str(derived.broken[0]), reason=derived.broken[0].name)


def differences(record: Json, derived: measure.Derived) -> Sequence[str]:
    """Names of the stored derived fields that differ from what the raw part comes to."""
    again: Json = {"error": record["error"], "reason": record["reason"]}
    fill(again, derived)
    return [name for name, value in again.items() if record.get(name) != value]


def _same(name: str, stored: float | None, found: float) -> None:
    if stored is None or not abs(stored - found) <= SAME_AL:
        raise NotMeasured(
            f"{name} is written as {stored}, but the observations come to {found:.6g}",
            "contradicts_itself",
        )
