#!/usr/bin/env bash
# Qwen3.5-397B-A17B in fp4 on B300 with vLLM.
# Page: https://recipes.vllm.ai (models/Qwen/Qwen3.5-397B-A17B.yaml at 8959cf64)
# Flags: vllm 0.32.0, 0.27.1
# The page marks GB200 as verified, not B300. Text only. If it stops at num_cache_lines, the page's
# remedy is --max-cudagraph-capture-size 512.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate mtp 3

engine_env=(
  VLLM_USE_DEEP_GEMM=0
  VLLM_DEEP_GEMM_WARMUP=skip
)
parallel=(--tensor-parallel-size "$TP" --data-parallel-size "$DP_SIZE")
[[ $DP_ATTENTION != true ]] || parallel=(--tensor-parallel-size 1 --data-parallel-size "$TP")
[[ $EP_SIZE == 1 ]] || parallel+=(--enable-expert-parallel)
args=(
  --served-model-name "$MODEL"
  --host 127.0.0.1
  --port "$PORT"
  --max-model-len "$MAX_MODEL_LEN"
  --no-enable-prefix-caching
  "${parallel[@]}"
  --trust-remote-code
  --reasoning-parser qwen3
  --language-model-only
  --kv-cache-dtype fp8
  "${speculation_args[@]}"
)

serve vllm serve "$MODEL_PATH" "${args[@]}"
run_benchmark_serving
run_eval
