"""What a job says of itself, in words that are the same whoever wrote them."""

from __future__ import annotations

from typing import Any

from utils import records
from utils.errors import NotMeasured
from utils.evals.expected import Expected
from utils.records import Json

# What makes two results comparable, beside the cell itself: two jobs that differ in one of these
# are two rows.
OF_THE_JOB = (
    *("model_prefix", "model", "precision", "hw", "engine"),
    *("spec_decoding", "draft_model", "synthetic_acceptance"),
)
TOPOLOGY = {"tp", "pp", "ep", "dcp_size", "pcp_size", "dp_attention", "is_multinode"}


def identity(about: Json) -> Json:
    return {**{name: about.get(name) for name in OF_THE_JOB}, "topology": _topology(about)}


def about(asked: Expected) -> Json:
    """What plan.json, else meta_env.json, says of a job.

    Raises:
        NotMeasured: it can't be used.
    """
    data = asked.plan or asked.meta
    if data is None:
        raise NotMeasured("; ".join(f"{p.cell}: {p.detail}" for p in asked.problems))
    if data is asked.meta:
        prefix, engine = data.get("infmax_model_prefix"), data.get("framework")
        data = {**data, "model_prefix": prefix, "engine": engine}
    return {key: _plain(value) for key, value in data.items()}


def _plain(value: Any) -> Any:
    """InferenceX writes some numbers and booleans as text."""
    if isinstance(value, str) and (number := records.whole(value)) is not None:
        return number
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _topology(about: Json) -> str:
    """Such as "tp=8 ep=1 dp_attention"."""
    said = about.get("topology")
    if said is None:
        said = {
            name: value
            for name, value in about.items()
            if name in TOPOLOGY or name.startswith(("prefill_", "decode_"))
        }
    words = [
        name if value is True else f"{name}={value}"
        for name, value in sorted(said.items())
        if value not in (False, None)
    ]
    return " ".join(words)
