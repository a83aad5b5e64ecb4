#!/usr/bin/env bash
# DeepSeek-V4-Pro in fp4 on GB300 with vLLM under Dynamo: a prefill worker with
# data-parallel attention, TP 4 decode workers.
# Page: https://github.com/SemiAnalysisAI/InferenceX (benchmarks/multi_node/srt-slurm-recipes/
#   vllm/deepseek-v4/8k1k/disagg-gb300-1p1d-dep4-tp4-mtp2.yaml at 0e1f762c)
# Flags: vllm 0.32.0, 0.27.1
# Drafts in the decode workers only, as on the page.
# Left out: sleep mode, and a stream interval above 1, which hides the steps that are counted here.
set -euo pipefail
source "$(dirname "$0")/../multi_node_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate mtp 2

engine_env=(
  VLLM_ENGINE_READY_TIMEOUT_S=3600 TILELANG_CLEANUP_TEMP_FILES=1 VLLM_USE_NCCL_SYMM_MEM=1
  NCCL_CUMEM_ENABLE=1 NCCL_MNNVL_ENABLE=1 NCCL_NVLS_ENABLE=1 TORCH_SYMMMEM=NVSHMEM
)
both=(
  --served-model-name "$MODEL"
  --max-model-len "$MAX_MODEL_LEN"
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
  --tensor-parallel-size 1 --data-parallel-size 4 --data-parallel-rpc-port 13345
  --enable-expert-parallel --enable-ep-weight-filter --moe-backend deep_gemm_mega_moe
  --enforce-eager --no-async-scheduling --max-num-seqs 256 --max-num-batched-tokens 16384
)
decode=(
  "${both[@]}"
  --tensor-parallel-size "$TP"
  --max-num-seqs 512 --max-cudagraph-capture-size 512 --max-num-batched-tokens 1024
  --compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY", "mode": 0}'
  "${speculation_args[@]}"
)

serve_disaggregated 1 4
run_benchmark_serving
run_eval
