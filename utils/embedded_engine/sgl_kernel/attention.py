"""Attention over a paged KV cache, one request at a time, as torch operators of `sgl_kernel`."""

from __future__ import annotations

import torch
from torch import Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None) -> Tensor:
    """q [queries, heads, width], k and v [keys, kv_heads, width], mask [queries, keys]."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (
        q.transpose(0, 1),
        k.repeat_interleave(groups, 1).transpose(0, 1).to(q.dtype),
        v.repeat_interleave(groups, 1).transpose(0, 1).to(q.dtype),
    )
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return out.transpose(0, 1)


def require_plain(cap: float, window: int, cross: bool, *others: Tensor | None) -> None:
    if cap > 0 or window > 0 or cross or any(other is not None for other in others):
        raise NotImplementedError(
            "stand-in for sgl_kernel: no logit cap, sliding window, cross attention or sinks"
        )


def extend_attention_cpu(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    o: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    is_causal: bool,
) -> None:
    """Prefill, and the verification of drafts."""
    require_plain(logit_cap, sliding_window_size, is_cross_attn, encoder_lens, sinks)
    used = 0
    rows = zip(
        req_pool_indices.tolist(),
        seq_lens.tolist(),
        extend_seq_lens.tolist(),
        extend_start_loc.tolist(),
        strict=True,
    )
    for request, keys, queries, start in rows:
        if queries == 0:
            continue
        mask = torch.ones(queries, keys, dtype=torch.bool)
        if tree_mask is not None:  # which drafts a draft sees
            part = tree_mask[used : used + queries * queries]
            mask[:, keys - queries :] = part.view(queries, queries).bool()
            used += queries * queries
        elif is_causal:
            mask = mask.tril(keys - queries)
        slots = req_to_token[request, :keys].long()
        mine = slice(start, start + queries)
        o[mine] = attend(q[mine], k_buffer[slots], v_buffer[slots], sm_scale, mask)


def decode_attention_cpu(
    q: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    o: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """One token a request; its key and value go into the cache first."""
    require_plain(logit_cap, sliding_window_size, is_cross_attn, encoder_lens, sinks)
    if k is not None and v is not None:
        k_buffer[loc.long()] = k.reshape(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[loc.long()] = v.reshape(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    for i, (request, keys) in enumerate(
        zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)
    ):
        slots = req_to_token[request, :keys].long()
        mine = slice(i, i + 1)
        o[mine] = attend(q[mine], k_buffer[slots], v_buffer[slots], sm_scale)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    topk: int,
    steps: int,
    pool_len: int,
) -> Tensor:
    """One row of cache slots per branch: the request's own, then those of the branch's drafts."""
    rows = req_to_token.new_zeros((req_pool_indices.shape[0] * topk, pool_len))
    requests = zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)
    for i, (request, length) in enumerate(requests):
        for branch in range(topk):
            first = length + branch * steps
            row = rows[i * topk + branch]
            row[:length] = req_to_token[request, :length]
            row[length : length + steps] = req_to_token[request, first : first + steps]
    return rows


def murmur_hash32_cpu(seed: Tensor, positions: Tensor, columns: Tensor) -> Tensor:
    raise NotImplementedError("stand-in for sgl_kernel: sampling with a seed")


LIBRARY = torch.library.Library("sgl_kernel", "DEF")
LIBRARY.define(
    "extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) o, Tensor k_buffer,"
    " Tensor v_buffer, float k_scale, float v_scale, Tensor req_to_token, Tensor req_pool_indices,"
    " Tensor seq_lens, Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend,"
    " float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window_size,"
    " Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, bool is_causal) -> ()"
)
LIBRARY.define(
    "decode_attention_cpu(Tensor q, Tensor(b!) k_buffer, Tensor(c!) v_buffer, float k_scale,"
    " float v_scale, Tensor(a!) o, Tensor? k, Tensor? v, Tensor loc, Tensor attn_logits,"
    " Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, float sm_scale,"
    " float logit_cap, bool is_cross_attn, int sliding_window_size, Tensor? encoder_lens,"
    " Tensor? sinks) -> ()"
)
LIBRARY.define("murmur_hash32_cpu(Tensor seed, Tensor positions, Tensor columns) -> Tensor")
for operator in (extend_attention_cpu, decode_attention_cpu, murmur_hash32_cpu):
    LIBRARY.impl(operator.__name__, operator, "CPU")
