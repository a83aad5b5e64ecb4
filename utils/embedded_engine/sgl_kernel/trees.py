"""Trees of draft tokens: building them from what a drafter proposed, and greedy verification.

Node 0 is the root, the last token that is certain. Each node knows its first child and its next
sibling; -1 is none.
"""

from __future__ import annotations

import torch
from torch import Tensor

QLEN_ONLY = 1  # a mask of drafts by drafts; SGLang's CPU paths use no other


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    seq_lens: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    depth: int,
    num_nodes: int,
    mode: int,
) -> None:
    """Link the chosen drafts of each request; mask and positions follow from the links."""
    if int(mode) != QLEN_ONLY:
        raise NotImplementedError("stand-in for sgl_kernel: tree masks other than QLEN_ONLY")
    requests = seq_lens.numel()
    shape = (requests, num_nodes)
    masks = tree_mask.view(-1)[: requests * num_nodes * num_nodes].view(*shape, num_nodes)
    proposed, chosen = (t.reshape(requests, -1).tolist() for t in (parent_list, selected_index))
    retrieve_index.view(-1)[: requests * num_nodes] = torch.arange(requests * num_nodes)
    for i, length in enumerate(seq_lens.tolist()):
        parents = _parents(proposed[i], chosen[i][: num_nodes - 1], topk)
        child, sibling = _links(parents)
        retrieve_next_token.view(shape)[i] = torch.tensor(child)
        retrieve_next_sibling.view(shape)[i] = torch.tensor(sibling)
        seen = torch.zeros(num_nodes, num_nodes, dtype=torch.bool)
        for node, parent in enumerate(parents):
            if parent >= 0:
                seen[node] = seen[parent]
            seen[node, [0, node]] = True
        masks[i] = seen
        positions.view(shape)[i] = seen.sum(1) - 1 + length


def _parents(proposed: list[int], chosen: list[int], topk: int) -> list[int]:
    """Each node's parent; -1 for the root, and for a draft whose own parent wasn't chosen.

    `chosen` are places in the list of all candidates, topk of them to each place in `proposed`,
    which again names a candidate; the first topk candidates hang at the root.
    """
    nodes = {candidate: node for node, candidate in reversed([*enumerate(chosen, start=1)])}
    return [-1] + [
        0 if group == 0 else nodes.get(proposed[group], -1)
        for group in (candidate // topk for candidate in chosen)
    ]


def _links(parents: list[int]) -> tuple[list[int], list[int]]:
    child, sibling = [-1] * len(parents), [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        parent = parents[node]
        if parent >= 0:
            sibling[node], child[parent] = child[parent], node
    return child, sibling


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,  # spelled as SGLang passes them
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk down while a child is what the target says; what it says at the end is the bonus."""
    wanted = target_predict.flatten().tolist()
    requests = zip(
        candidates.tolist(),
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
        strict=True,
    )
    for i, (drafts, rows, child, sibling) in enumerate(requests):
        node, path = 0, [rows[0]]
        while True:
            target = wanted[path[-1]]
            predicts[path[-1]] = target
            node = child[node]
            while node != -1 and drafts[node] != target:
                node = sibling[node]
            if node == -1 or len(path) == accept_index.shape[1]:
                break
            path.append(rows[node])
        accept_index[i, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
        accept_token_num[i] = len(path) - 1
