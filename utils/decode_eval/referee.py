"""Speculative decoding in plain PyTorch: slow, small enough to check by eye, and judge of the rest.

It decodes with a target and a draft by exact rejection sampling (Leviathan et al., arXiv
2211.17192; at temperature 0 that is greedy), so its output is the target's own, and counts what an
engine counts. Where its acceptance length and an engine's part, one of export, conversion and
engine is wrong.
"""

# torch is not installed where mypy runs: what it returns is Any.
# mypy: disable-error-code="no-any-return, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from utils.decode_eval.eagle3_head import Eagle3Head, Past, feature_layers


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy. generator: source of chance, ignored at 0."""

    temperature: float = 0.0
    generator: torch.Generator | None = None

    def distribution(self, logits: Tensor) -> Tensor:
        """Probabilities over the last dimension; one-hot at temperature 0."""
        if self.temperature == 0:
            return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
        return (logits / self.temperature).softmax(-1)

    def draw(self, probabilities: Tensor) -> int:
        if self.temperature == 0:
            return int(probabilities.argmax())
        return int(torch.multinomial(probabilities, 1, generator=self.generator))


class Drafter(Protocol):
    """Proposes tokens. seen: ids so far; features: the target's hidden states before the last."""

    def propose(
        self, seen: Sequence[int], features: Tensor, n: int, sampling: Sampling
    ) -> tuple[list[int], Tensor]:
        """n tokens, and the distributions (n, vocabulary) that they were drawn from."""
        ...


@dataclass
class Decoded:
    """tokens: the output. accepted: of every verify step, how many drafts were accepted."""

    tokens: list[int]
    accepted: list[int] = field(default_factory=list)


def accept_probability(p: Tensor, q: Tensor, token: int) -> float:
    """min(1, p / q) of a drafted token; p the target's distribution, q the draft's."""
    return min(1.0, float(p[token] / q[token]))


def residual(p: Tensor, q: Tensor) -> Tensor:
    """What a rejected draft is replaced from: the part of p that q lacks, as a distribution."""
    left = (p - q).clamp(min=0)
    return left / left.sum()


def verify(
    drafts: Sequence[int], draft: Tensor, target: Tensor, sampling: Sampling
) -> tuple[int, int]:
    """How many drafts are accepted, and the token after them.

    draft: (n, vocabulary) distributions that the drafts were drawn from; target: (n + 1,
    vocabulary) the target's at the same places and one further.
    """
    for index, token in enumerate(drafts):
        p, q = target[index], draft[index]
        chance = float(torch.rand((), generator=sampling.generator))
        if not chance < accept_probability(p, q, token):
            return index, sampling.draw(residual(p, q))
    return len(drafts), sampling.draw(target[len(drafts)])


class Target:
    """A causal language model with its cache; shows logits and the features a head wants."""

    def __init__(self, model: Any) -> None:
        from transformers import DynamicCache

        self.model, self.cache = model, DynamicCache(config=model.config)
        self.layers = feature_layers(model.config.num_hidden_layers)
        self.features = torch.empty(0)

    def read(self, tokens: Sequence[int]) -> Tensor:
        """Read further tokens: logits (tokens, vocabulary)."""
        out = self.model(
            torch.tensor([tokens]), past_key_values=self.cache, output_hidden_states=True
        )
        rows = torch.cat([out.hidden_states[layer][0] for layer in self.layers], -1)
        self.features = torch.cat([self.features, rows]) if len(self.features) else rows
        return out.logits[0]

    def forget(self, length: int) -> None:
        """Keep the first `length` tokens alone."""
        if surplus := self.cache.get_seq_length() - length:
            self.cache.crop(-surplus)
        self.features = self.features[:length]


@torch.inference_mode()
def decode_plain(
    model: Any, prompt: Sequence[int], limit: int, stop: set[int], sampling: Sampling
) -> Decoded:
    """The target alone, token by token: what speculation must not change."""
    target, out = Target(model), Decoded([])
    logits = target.read(prompt)
    while True:
        out.tokens.append(sampling.draw(sampling.distribution(logits[-1])))
        if len(out.tokens) >= limit or out.tokens[-1] in stop:
            return out
        logits = target.read(out.tokens[-1:])


@torch.inference_mode()
def decode(
    model: Any,
    drafter: Drafter,
    prompt: Sequence[int],
    n: int,
    limit: int,
    stop: set[int],
    sampling: Sampling,
) -> Decoded:
    """Target and draft together.

    prompt: ids; n: drafts a step; limit: most new tokens; stop: ids that end the output. The drafts
    of the last step count as accepted also where the output ends before them, as engines count.
    """
    target, seen = Target(model), list(prompt)
    out = Decoded([sampling.draw(sampling.distribution(target.read(seen)[-1]))])
    while len(out.tokens) < limit and not stop & set(out.tokens):
        seen = [*prompt, *out.tokens]
        drafts, q = drafter.propose(seen, target.features, n, sampling)
        p = sampling.distribution(target.read([seen[-1], *drafts]))
        count, further = verify(drafts, q, p, sampling)
        target.forget(len(seen) + count)
        out.accepted.append(count)
        out.tokens += [*drafts[:count], further]
    ends = [index + 1 for index, token in enumerate(out.tokens) if token in stop]
    out.tokens = out.tokens[: min([limit, *ends])]
    return out


class Eagle3Drafter:
    """Drafts with an EAGLE-3 head; the embedding is the target's."""

    def __init__(self, head: Eagle3Head, embedding: Tensor) -> None:
        self.head, self.embedding, self.ids = head, embedding, head.target_ids

    def propose(
        self, seen: Sequence[int], features: Tensor, n: int, sampling: Sampling
    ) -> tuple[list[int], Tensor]:
        past: Past = []
        hidden = self.head.fc(features)
        tokens = torch.tensor(seen[1:])
        drafts: list[int] = []
        spread = torch.zeros(n, len(self.embedding))
        for step in range(n):
            hidden, logits = self.head(self.embedding[tokens], hidden, past)
            spread[step, self.ids] = sampling.distribution(logits[-1])
            drafts.append(sampling.draw(spread[step]))
            hidden, tokens = hidden[-1:], torch.tensor(drafts[-1:])
        return drafts, spread


class ModelDrafter:
    """Drafts with a causal language model of the target's vocabulary, read anew each step."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def propose(
        self,
        seen: Sequence[int],
        features: Tensor,  # noqa: ARG002 # reads tokens alone
        n: int,
        sampling: Sampling,
    ) -> tuple[list[int], Tensor]:
        drafts: list[int] = []
        spread = []
        for _ in range(n):
            logits = self.model(torch.tensor([[*seen, *drafts]])).logits[0, -1]
            spread.append(sampling.distribution(logits))
            drafts.append(sampling.draw(spread[-1]))
        return drafts, torch.stack(spread)
