"""Bookkeeping between requests, their tokens and the slots of the KV cache."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write each request's new slots into its row, from `start` to `end`."""
    used = 0
    for request, first, last in _rows(req_pool_indices, start, end):
        new = out_cache_loc[used : used + last - first]
        req_to_token[request, first:last] = new.to(req_to_token.dtype)
        used += last - first


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """The reverse: read them from the rows."""
    used = 0
    for request, first, last in _rows(req_pool_indices, start, end):
        slots = req_to_token[request, first:last]
        out_cache_loc[used : used + last - first] = slots.to(out_cache_loc.dtype)
        used += last - first


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    steps: int,
) -> None:
    """The slots of all drafts of a request, which follow its tokens."""
    end = seq_lens + topk * steps
    assign_extend_cache_locs_cpu(
        req_pool_indices, req_to_token, seq_lens, end, out_cache_loc, pool_len
    )


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, stride: int
) -> None:
    """The last accepted token of each request."""
    requests = accept_lens.shape[0]
    last = torch.arange(requests) * stride + accept_lens.long() - 1
    bonus_tokens[:requests] = accept_tokens.flatten()[last].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor
) -> None:
    """Pack the slots of accepted tokens; an index of -1 was not accepted."""
    accepted = accept_index.flatten()
    accepted = accepted[accepted > -1].long()
    accept_out_cache_loc.view(-1)[: accepted.numel()] = out_cache_loc[accepted]


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's ids left by one and put its new token at the end, or where told."""
    new = topk_index.flatten().tolist()
    for i, (start, length) in enumerate(_rows(extend_start_loc, extend_seq_lens)):
        if length == 0:
            continue
        end = start + length
        input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
        input_ids[end - 1 if select_index is None else select_index[i]] = new[i]


def copy_all_layer_kv_cache_cpu(
    data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor
) -> None:
    """Move slots within every layer's buffer, given by address and bytes a slot."""
    sources, targets = src_loc.tolist(), tgt_loc.tolist()
    for base, size in _rows(data_ptrs, strides):
        # All are read before any is written: the two sets overlap.
        slots = [ctypes.string_at(base + source * size, size) for source in sources]
        for target, slot in zip(targets, slots, strict=True):
            ctypes.memmove(base + target * size, slot, size)


def _rows(*columns: Tensor) -> zip[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)
