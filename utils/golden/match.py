"""Which golden a record belongs to: equal in everything that the golden states, or none at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from utils.acceptance.argv import option
from utils.errors import NotMeasured
from utils.evals.al_record import VERSION, VERSION_KEY
from utils.golden.registry import ENGINE_DEFAULT, NO_DRAFT_MODEL, Golden, flat_workload
from utils.records import Json

# Whatever version 1 measured is SPEED-Bench: its writer knows no other data set.
SPEED_BENCH = "speed-bench"
ALWAYS = ("thinking", "num_speculative_tokens", "method", "dataset")
NAMES = ("model", "draft_model")
# Of a part of the prompts neither number nor hash is the golden's.
SAMPLE = {"prompts", "prompts_sha256"}


class TooFew(NotMeasured):
    """A record of a part of the golden's prompts: right in everything, but no sample."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "insufficient_sample")


def find(record: Json, goldens: Sequence[Golden], min_share: float) -> Golden:
    """The golden with the record's key.

    Raises:
        TooFew: it would be the record's, but for less than min_share of its prompts.
        NotMeasured: none has it (no_golden), or several do and nothing in the record tells which
            (ambiguous_golden).
    """
    mine = [golden for golden in goldens if _same_model(record, golden)]
    if not mine:
        known = ", ".join(sorted({golden.prefix for golden in goldens})) or "no model at all"
        name = record.get("model") or record.get("model_key")
        raise NotMeasured(
            f"no golden of model {name}, prefix {record.get('model_prefix')}; "
            f"there are goldens of {known}: collect one (python3 -m utils.golden collect)",
            "no_golden",
        )
    told = [(differences(record, golden), golden) for golden in mine]
    matches = [golden for differs, golden in told if not differs]
    if len(matches) > 1:
        raise NotMeasured(
            f"{' and '.join(map(str, matches))} all fit: the record says too little to choose; "
            "measure again with version 2 of the record",
            "ambiguous_golden",
        )
    if not matches:
        differs, nearest = min(told, key=lambda pair: (len(pair[0]), _steps_away(record, pair[1])))
        if differs.keys() <= SAMPLE and _prompts(record) < min_share * nearest.key["prompts"]:
            sent, whole = _prompts(record), nearest.key["prompts"]
            raise TooFew(f"{sent} of the {whole} prompts of {nearest} were sent; send them all")
        text = "; ".join(differs.values())
        raise NotMeasured(
            f"nearest is {nearest}: {text}; measure as it was, or collect", "no_golden"
        )
    return matches[0]


def _prompts(record: Json) -> int:
    return int(record["workload"]["prompts"])


def differences(record: Json, golden: Golden) -> dict[str, str]:
    """In what a record departs from a golden, by name, for people."""
    key = key_of(record)
    names = [name for name, value in golden.key.items() if value is not None or name in ALWAYS]
    if not golden.imported:
        # A measured golden holds every sampling field that was sent; one more is another sampling.
        names += [name for name in key if name.startswith("sampling.") and name not in golden.key]
    if record[VERSION_KEY] != VERSION:
        names = [name for name in names if key.get(name) is not None]
    found = {
        name: f"golden has {name} {_text(golden.key.get(name))}, the record {_text(key.get(name))}"
        for name in names
        if name != "model" and _plain(name, golden.key.get(name)) != _plain(name, key.get(name))
    }
    if golden.key["dataset"] == SPEED_BENCH and record.get("workload", {}).get("proxy"):
        found.setdefault("dataset", f"golden is of {SPEED_BENCH}, the record of a proxy for it")
    served = revision(record.get("server", {}).get("argv"))
    if None not in (golden.revision, served) and golden.revision != served:
        found["model_revision"] = f"golden is of revision {golden.revision}, the record of {served}"
    return found


def revision(argv: Sequence[str] | None) -> str | None:
    """The commit of the weights by a server's command line: --revision, or a hub cache's folder."""
    words = argv or ()
    stored = re.search(r"/snapshots/([0-9a-f]{40})(?:[/ ]|$)", " ".join(words))
    return option(words, "--revision") or (stored[1] if stored else None)


def key_of(record: Json) -> dict[str, Any]:
    """A record's side of the comparison; version 1 states less."""
    key = {
        "thinking": record["thinking_mode"],
        "num_speculative_tokens": record["num_speculative_tokens"],
        "category": record.get("category"),
        "output_len": record.get("output_len"),
    }
    if record[VERSION_KEY] != VERSION:
        return {**key, "dataset": SPEED_BENCH, "sampling.temperature": record.get("temperature")}
    return {**key, **drafter(record["speculation"]), **flat_workload(record["workload"])}


def drafter(spoken: Json) -> dict[str, str | None]:
    """How a record's server speculates, as a golden says it."""
    return {
        "method": spoken["method"],
        "draft_model": spoken["draft_model"] or NO_DRAFT_MODEL,
        "draft_sample_method": spoken["draft_sample_method"] or ENGINE_DEFAULT,
        "rejection_sample_method": spoken["rejection_sample_method"] or ENGINE_DEFAULT,
    }


def _same_model(record: Json, golden: Golden) -> bool:
    """By the model's name; by the prefix where the name is missing or only a folder of weights."""
    prefix, model = record.get("model_prefix"), record.get("model") or ""
    if record[VERSION_KEY] == VERSION and prefix != golden.prefix:
        return False
    target = {_base(golden.key["model"]), golden.prefix.lower()}
    if _base(model) in target:
        return True
    if model and not model.startswith("/"):
        return False  # version 1 chose its model_key by the prefix, whatever was served
    key = record.get("model_key")
    return _base(key) in target if key else prefix == golden.prefix


def _steps_away(record: Json, golden: Golden) -> int:
    return abs(golden.n - int(record["num_speculative_tokens"]))


def _base(name: str) -> str:
    return PurePosixPath(name).name.lower()


def _plain(name: str, value: Any) -> Any:
    return _base(value) if name in NAMES and value else value


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
