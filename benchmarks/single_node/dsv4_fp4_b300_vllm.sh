#!/usr/bin/env bash
# DeepSeek-V4-Pro, the preview checkpoint that keeps its MTP layer, in fp4 on B300 with vLLM.
# Page: https://recipes.vllm.ai (models/deepseek-ai/DeepSeek-V4-Pro.yaml at 8959cf64)
# Flags: vllm 0.32.0, 0.27.1
# The indexer's FP4 cache is the page's; by default it would be fp8, with other numbers. Mega-MoE
# and whole graphs go with expert parallelism, without it autotuning is off; both as on the page.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

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
  --reasoning-parser deepseek_v4
  --tokenizer-mode deepseek_v4
  --kv-cache-dtype fp8
  --block-size 256
  --attention-config '{"indexer_kv_dtype": "mxfp4"}'
)
graphs='{"cudagraph_mode": "FULL_AND_PIECEWISE", "custom_ops": ["all"]}'
[[ $EP_SIZE == 1 ]] || args+=(--moe-backend deep_gemm_mega_moe --compilation-config "$graphs")
[[ $EP_SIZE != 1 ]] || args+=(--no-enable-flashinfer-autotune)

serve vllm serve "$MODEL_PATH" "${args[@]}"
run_benchmark_serving
run_eval
