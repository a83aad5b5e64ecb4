"""A record beside its nearest golden, with the figures that hypotheses ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from utils.acceptance import engines, estimate, measure
from utils.acceptance.client import Answer
from utils.acceptance.engines import Speculation, vllm
from utils.acceptance.tally import always_drafts
from utils.errors import NotMeasured
from utils.evals import al_record
from utils.golden import match, positions
from utils.golden.positions import Loss, Profile
from utils.golden.registry import Golden
from utils.records import Json

LOW = 0.95


@dataclass(frozen=True)
class Case:
    """What is known of one measurement.

    golden: the nearest one, None where the model has none. curve, other_mode: goldens that differ
    from it in N, in the thinking mode. settings: how the golden's collection speculates.
    """

    record: Json
    plan: Json = field(default_factory=dict)
    golden: Golden | None = None
    curve: Sequence[Golden] = ()
    other_mode: Sequence[Golden] = ()
    settings: Mapping[str, str | int] = field(default_factory=dict)

    @cached_property
    def derived(self) -> measure.Derived | None:
        """Figures and checks, broken ones too; None without a window that has steps in it."""
        if self.record[al_record.VERSION_KEY] != al_record.VERSION:
            return None
        try:
            return al_record.rederive(self.record)[2]
        except NotMeasured:
            return None

    @property
    def n(self) -> int:
        return int(self.record["num_speculative_tokens"])

    @property
    def measured(self) -> bool:
        return self.steps > 0

    @property
    def accepted(self) -> int:
        return self.derived.counts.accepted if self.derived else self._count("accepted_tokens")

    @property
    def steps(self) -> int:
        return self.derived.counts.steps if self.derived else self._count("verify_steps")

    def _count(self, name: str) -> int:
        found = self.record.get(name)
        return found if isinstance(found, int) else 0

    @property
    def al(self) -> float:
        """NaN, which is neither near nor low, where there is no step."""
        return 1 + self.accepted / self.steps if self.steps else math.nan

    @property
    def is_low(self) -> bool:
        return bool(self.golden and self.al < LOW * self.golden.acceptance_length)

    def is_near(self, length: float, tolerance: float) -> bool:
        """Whether the AL is another one's, and not the golden's."""
        away = abs(self.al / self.golden.acceptance_length - 1) if self.golden else math.inf
        return abs(self.al / length - 1) < tolerance < away

    def is_goldens(self, length: float, tolerance: float) -> bool:
        """Whether another AL is the golden's."""
        golden = self.golden
        return bool(golden and abs(length / golden.acceptance_length - 1) < tolerance)

    @property
    def error(self) -> str:
        return str(self.record.get("error"))

    @property
    def reason(self) -> str | None:
        return self.record.get("reason")

    def broken(self, name: str) -> str | None:
        """What a check found, if it is broken."""
        checks = self.derived.checks if self.derived else ()
        return next((str(c) for c in checks if c.name == name and c.ok is False), None)

    @cached_property
    def answers(self) -> list[Answer]:
        rows = self.record.get("raw", {}).get("requests", [])
        return [answer for answer in map(Answer.from_json, rows) if answer.ok]

    @cached_property
    def rows(self) -> list[tuple[int, int]]:
        """(accepted, steps) of each answer; empty where one has no figures of its own."""
        own = [(a.spec.accepted, a.spec.steps) for a in self.answers if a.spec]
        return own if len(own) == len(self.answers) else []

    def al_of(self, chosen: Sequence[bool]) -> float | None:
        """The AL over some of the answers."""
        mine = [row for row, wanted in zip(self.rows, chosen, strict=False) if wanted]
        steps = sum(steps for _, steps in mine)
        return 1 + sum(accepted for accepted, _ in mine) / steps if steps else None

    @property
    def al_without_first_steps(self) -> float | None:
        """As if every request had one step less, in which nothing was accepted."""
        rest = self.steps - len(self.answers)
        return 1 + self.accepted / rest if self.answers and rest > 0 else None

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of steps whose draft was accepted, by position; empty when not known."""
        return self.derived.estimate.per_position if self.derived else ()

    @property
    def loss(self) -> Loss | None:
        """Where a low AL lost what its golden has; None where positions don't tell."""
        if not self.is_low or not self.shares or not self.golden_profile:
            return None
        return positions.loss(Profile(self.shares), self.golden_profile)

    @cached_property
    def golden_profile(self) -> Profile | None:
        return positions.of_golden(self.golden, self.curve) if self.golden else None

    @property
    def design_effect(self) -> float | None:
        """Variance of the AL between requests, over that of steps drawn like dice.

        Of dice with survival p_j the accepted drafts a of a step have E[a²] = Σ (2j - 1) p_j.
        """
        error = estimate.clustered_standard_error(self.rows)
        second = sum((2 * j - 1) * p for j, p in enumerate(self.shares, start=1))
        dice = (second - (self.al - 1) ** 2) / self.steps if self.shares and self.steps else 0.0
        return error**2 / dice if error is not None and dice > 0 else None

    @cached_property
    def spoken(self) -> Speculation:
        """How the server speculates, by its command line."""
        words = self.record.get("server", {}).get("argv")
        return engines.load(self.record["framework"]).speculation(words) if words else Speculation()

    @property
    def always_drafts(self) -> bool:
        return always_drafts(self.record.get("speculation", {}).get("method"))

    @property
    def drafted_per_step(self) -> float | None:
        drafted = self.derived.counts.drafted if self.derived else None
        return drafted / self.steps if drafted and self.steps else None

    @cached_property
    def differences(self) -> dict[str, str]:
        return match.differences(self.record, self.golden) if self.golden else {}

    def differs(self, name: str) -> str:
        """In what the record departs from the golden; empty where it doesn't."""
        return self.differences.get(name, "")

    @property
    def other_settings(self) -> dict[str, tuple[Any, Any]]:
        """Look-up settings of the server that aren't those of the golden's collection."""
        has = vllm.speculative_config(self.record.get("server", {}).get("argv") or ())
        return {
            key: (has.get(key, "by default"), want)
            for key, want in self.settings.items()
            if has and key.startswith("prompt_lookup") and has.get(key) != want
        }

    @property
    def ranks(self) -> int:
        """Engines that the metrics told apart."""
        scrape = self.record.get("raw", {}).get("after") or {"samples": []}
        series = [(s["endpoint"], s["labels"].get("engine")) for s in scrape["samples"]]
        told = {pair for pair in series if pair[1] is not None}
        return max(len(told), len({endpoint for endpoint, _ in series}))
