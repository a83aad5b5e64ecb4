"""A one-layer EAGLE-3 head in plain PyTorch: for the referee, and to train from.

Tensor names are those of `LlamaForCausalLMEagle3`, which vLLM and SGLang read. Row t of a sequence
combines the embedding of token t+1 with the target's hidden states at token t and predicts token
t+2 (EAGLE-3, arXiv 2503.01840).
"""

# torch is not installed where mypy runs: its classes and what they return are Any.
# mypy: disable-error-code="misc, no-any-return, import-not-found"

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from utils import records
from utils.decode_eval import weights
from utils.errors import UsageError
from utils.records import Json

ARCHITECTURE = "LlamaForCausalLMEagle3"
# Fields of config.json with which engines compute something that this head doesn't.
OTHERWISE = (
    *("norm_before_residual", "norm_output", "parallel_drafting"),
    *("eagle_aux_hidden_state_layer_ids", "eagle_config"),
)


def feature_layers(layers: int) -> tuple[int, int, int]:
    """Whose inputs the head sees when its config names none; vLLM's and SGLang's default."""
    return 2, layers // 2, layers - 3


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


# Keys and values of every draft step so far, (kv_heads, rows, head_size) each.
Past = list[tuple[Tensor, Tensor]]


class Attention(nn.Module):
    """Grouped-query attention with rotary positions: tokens before, and a row's own drafts."""

    def __init__(self, config: Json) -> None:
        super().__init__()
        size, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.head_size = config.get("head_dim") or size // self.heads
        self.q_proj = _linear(2 * size, self.heads * self.head_size)
        self.k_proj = _linear(2 * size, self.kv_heads * self.head_size)
        self.v_proj = _linear(2 * size, self.kv_heads * self.head_size)
        self.o_proj = _linear(self.heads * self.head_size, size)
        exponent = torch.arange(0, self.head_size, 2).float() / self.head_size
        self.frequencies = 1.0 / _rope_theta(config) ** exponent

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """x: (rows, 2 · hidden_size), the last rows of those that the first step had."""
        rows, step = x.shape[0], len(past)
        first = past[0][0].shape[1] - rows if past else 0
        positions = torch.arange(first, first + rows)
        query = self._turn(self._split(self.q_proj(x), self.heads), positions + step)
        key = self._turn(self._split(self.k_proj(x), self.kv_heads), positions + step)
        past.append((key, self._split(self.v_proj(x), self.kv_heads)))
        group = self.heads // self.kv_heads
        (keys, values), *chain = [
            (k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)) for k, v in past
        ]
        unseen = torch.arange(first + rows) > positions[:, None]
        scores = [(query @ keys.transpose(1, 2)).masked_fill(unseen, float("-inf"))]
        # A row's later steps see what it drafted itself, and nothing of other rows' drafts.
        scores += [(query * k[:, -rows:]).sum(-1, keepdim=True) for k, _ in chain]
        weights = (torch.cat(scores, -1) * self.head_size**-0.5).softmax(-1)
        mixed = weights[..., : first + rows] @ values
        for index, (_, value) in enumerate(chain, start=first + rows):
            mixed = mixed + weights[..., index, None] * value[:, -rows:]
        return self.o_proj(mixed.transpose(0, 1).reshape(rows, -1))

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], heads, self.head_size).transpose(0, 1)

    def _turn(self, x: Tensor, positions: Tensor) -> Tensor:
        angle = torch.outer(positions.float(), self.frequencies).repeat(1, 2)
        half = self.head_size // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * angle.cos() + turned * angle.sin()


class MLP(nn.Module):
    def __init__(self, config: Json) -> None:
        super().__init__()
        size, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj, self.up_proj = _linear(size, inner), _linear(size, inner)
        self.down_proj = _linear(inner, size)

    def forward(self, x: Tensor) -> Tensor:
        gate = functional.silu(self.gate_proj(x))
        return self.down_proj(gate * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: Json) -> None:
        super().__init__()
        size, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = RMSNorm(size, eps)
        self.hidden_norm = RMSNorm(size, eps)
        self.post_attention_layernorm = RMSNorm(size, eps)
        self.self_attn = Attention(config)
        self.mlp = MLP(config)

    def forward(self, embedded: Tensor, hidden: Tensor, past: Past) -> Tensor:
        both = torch.cat([self.input_layernorm(embedded), self.hidden_norm(hidden)], -1)
        hidden = hidden + self.self_attn(both, past)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3Head(nn.Module):
    """The head; d2t[i] is the offset from draft token i to its id in the target's vocabulary."""

    def __init__(self, config: Json, vocabulary: Tensor | None = None) -> None:
        """vocabulary: sorted ids of the target's tokens that the head can draft."""
        super().__init__()
        size, drafts = config["hidden_size"], config["draft_vocab_size"]
        self.config = dict(config)
        self.fc = _linear(3 * size, size)
        self.midlayer = Layer(config)
        self.norm = RMSNorm(size, config["rms_norm_eps"])
        self.lm_head = _linear(size, drafts)
        ids = torch.arange(drafts) if vocabulary is None else vocabulary
        known = torch.zeros(config["vocab_size"], dtype=torch.bool)
        known[ids] = True
        self.register_buffer("d2t", ids - torch.arange(drafts))
        self.register_buffer("t2d", known)

    def forward(self, embedded: Tensor, hidden: Tensor, past: Past) -> tuple[Tensor, Tensor]:
        """One draft step for every row.

        embedded, hidden: (rows, hidden_size). Returns the next step's hidden (rows, hidden_size)
        and the logits over the draft vocabulary (rows, draft_vocab_size).
        """
        hidden = self.midlayer(embedded, hidden, past)
        return hidden, self.lm_head(self.norm(hidden))

    @property
    def target_ids(self) -> Tensor:
        """Of every draft token, its id in the target's vocabulary."""
        offsets: Any = self.d2t
        return offsets + torch.arange(len(offsets))


def load(folder: Path) -> Eagle3Head:
    """A head from a snapshot, in float32.

    Raises:
        UsageError: it is of another architecture or kind, or its tensors are not the head's.
    """
    from safetensors.torch import load_file

    config = records.read_json(folder / "config.json")
    if config.get("architectures") != [ARCHITECTURE]:
        raise UsageError(
            f"{folder}: architectures {config.get('architectures')}, want [{ARCHITECTURE}]"
        )
    if other := [name for name in OTHERWISE if config.get(name)]:
        raise UsageError(f"{folder}: the referee's head has no {', '.join(other)}")
    head = Eagle3Head(config)
    tensors: dict[str, Tensor] = {}
    for file in weights.files(folder):
        tensors |= load_file(file)
    if wrong := set(tensors) ^ set(head.state_dict()):
        raise UsageError(f"{folder}: tensors missing or unknown: {', '.join(sorted(wrong))}")
    head.load_state_dict(tensors)
    return head.float().eval()


def _rope_theta(config: Json) -> float:
    parameters = config.get("rope_parameters") or config
    return float(parameters["rope_theta"])


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)
