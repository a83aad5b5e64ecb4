"""Pure-torch stand-in for the CPU build of SGLang's kernel package. Tests only: it is slow.

PyPI carries that package for CUDA alone, and without it SGLang's CPU engine
(SGLANG_USE_CPU_ENGINE=1) ends at its first import. These modules give SGLang 0.5.23, whose own
code stays as it is, the operations that its CPU paths call. Names and parameters are the ones it
calls them by. What isn't here raises: other tree mask layouts, seeded sampling, sliding windows,
logit caps, attention sinks, cross attention.

`convert_weight_packed` is left out on purpose: SGLang takes its absence for a CPU without AMX and
computes linear, norm, rotary and activation layers in plain torch.

It is copied into SGLang's environment; nothing of this project imports it.
"""

from .attention import build_draft_decode_metadata_cpu
from .slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from .trees import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]
__version__ = "0.0.0+specgate"
