#!/usr/bin/env bash
# Kimi-K2.5 in fp4 on B300 with vLLM.
# Page: https://recipes.vllm.ai (models/moonshotai/Kimi-K2.5.yaml at 8959cf64)
# Flags: vllm 0.32.0, 0.27.1
# The page marks GB200 as verified, not B300. Text only. Its environment for the MoE kernels does
# nothing from vLLM 0.24 on and is left out.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate eagle3 3 draft_model=lightseekorg/kimi-k2.5-eagle3-mla

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
  --reasoning-parser kimi_k2
  --language-model-only
  --kv-cache-dtype fp8
  "${speculation_args[@]}"
)

serve vllm serve "$MODEL_PATH" "${args[@]}"
run_benchmark_serving
run_eval
