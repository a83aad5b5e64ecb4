"""A vLLM plugin for replicates.py: temperatures above 0 with speculation on vLLM 0.32's CPU.

There a kernel that repeats each request's temperature for its draft tokens writes into a copy that
is thrown away, so logits are divided by whatever memory held, and hardly a draft is accepted.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.triton_utils.dispatcher import register_kernels
    from vllm.utils import cpu_triton_utils

    cpu_triton_utils._expand_kernel_impl = expand
    register_kernels({"vllm.v1.sample.rejection_sampler.expand_kernel": expand})


def expand(
    output: Any,
    input_val: Any,
    cu_num_tokens: Any,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,  # noqa: N803 (the kernel's own name for it)
) -> None:
    """output[i] = the value of the request that token i belongs to."""
    import torch

    values = torch.where(input_val == replace_from, replace_to, input_val)
    zero = cu_num_tokens.new_zeros(1)
    counts = torch.diff(cu_num_tokens, prepend=zero).long()
    output.copy_(torch.repeat_interleave(values, counts))
