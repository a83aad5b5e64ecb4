"""What n-gram speculation calls: it gives trees as masks, without links."""

from __future__ import annotations

import torch
from torch import Tensor


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """First child and next sibling of every node, from who is whose ancestor."""
    n, nodes = draft_token_num, torch.arange(draft_token_num)
    masks = tree_mask.view(-1)[: batch_size * n * n].view(batch_size, n, n).bool()
    ancestors = masks & torch.ones(n, n, dtype=torch.bool).tril(-1)
    parent = torch.where(ancestors, nodes, -1).amax(2)
    child = torch.where(ancestors, nodes[:, None], n).amin(1)
    siblings = (parent[:, :, None] == parent[:, None, :]) & (nodes[:, None] > nodes)
    sibling = torch.where(siblings, nodes[:, None], n).amin(1)
    for out, values in (
        (positions, ancestors.sum(2) + verified_seq_len[:batch_size, None]),
        (retrieve_index, torch.arange(batch_size * n)),
        (retrieve_next_token, torch.where(child < n, child, -1)),
        (retrieve_next_sibling, torch.where((parent >= 0) & (sibling < n), sibling, -1)),
    ):
        out.view(-1)[: batch_size * n] = values.flatten().to(out.dtype)
