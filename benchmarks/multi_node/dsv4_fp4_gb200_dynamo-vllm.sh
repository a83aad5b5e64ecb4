#!/usr/bin/env bash
# DeepSeek-V4-Pro in fp4 on GB200 with vLLM under Dynamo: a prefill worker with
# data-parallel attention, TP 8 decode workers.
# Page: https://github.com/NVIDIA/srt-slurm (recipes/vllm/deepseek-v4-pro/GB200/8k1k/
#   disagg-gb200-low-latency.yaml at 4bb97f19)
# Flags: vllm 0.32.0, 0.27.1
# Prefill and the indexer's FP4 cache as on the page's MTP variant, so that the pair differs in
# speculation only.
# Left out: sleep mode, and a stream interval above 1, which hides the steps that are counted here.
set -euo pipefail
source "$(dirname "$0")/../multi_node_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

engine_env=(
  VLLM_ENGINE_READY_TIMEOUT_S=3600 TILELANG_CLEANUP_TEMP_FILES=1 VLLM_USE_NCCL_SYMM_MEM=1
  NCCL_CUMEM_ENABLE=1 NCCL_MNNVL_ENABLE=1 NCCL_NVLS_ENABLE=1 NCCL_P2P_LEVEL=NVL
  'UCX_TLS=cuda_copy,cuda_ipc,tcp' UCX_CUDA_IPC_ENABLE_MNNVL=y UCX_MEMTYPE_CACHE=n
)
prefill_env=(VLLM_SPARSE_INDEXER_MAX_LOGITS_MB=1024 VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE=2048)
both=(
  --served-model-name "$MODEL" --max-model-len "$MAX_MODEL_LEN"
  --no-enable-prefix-caching
  --trust-remote-code
  --dyn-reasoning-parser deepseek_v4
  --tokenizer-mode deepseek_v4
  --kv-cache-dtype fp8 --block-size 256
  --attention-config '{"indexer_kv_dtype": "mxfp4"}'
  --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
  --no-disable-hybrid-kv-cache-manager --no-enable-flashinfer-autotune
  --gpu-memory-utilization 0.9
)
prefill=(
  "${both[@]}"
  --tensor-parallel-size 1 --data-parallel-size 8 --data-parallel-rpc-port 13345
  --enable-expert-parallel --enforce-eager --no-async-scheduling --numa-bind
  --max-num-seqs 8 --max-num-batched-tokens 16384
)
decode=(
  "${both[@]}"
  --tensor-parallel-size "$TP"
  --max-num-seqs 256 --max-cudagraph-capture-size 256 --max-num-batched-tokens 256
  --compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY", "mode": 0}'
)

serve_disaggregated 1 8
run_benchmark_serving
run_eval
