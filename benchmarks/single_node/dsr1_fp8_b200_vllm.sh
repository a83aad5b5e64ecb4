#!/usr/bin/env bash
# DeepSeek-R1-0528 in fp8 on B200 with vLLM.
# Page: https://recipes.vllm.ai (models/deepseek-ai/DeepSeek-R1.yaml at 8959cf64)
# Flags: vllm 0.32.0, 0.27.1
# The page's chat template is for tool calls and left out.
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
  --reasoning-parser deepseek_r1
)

serve vllm serve "$MODEL_PATH" "${args[@]}"
run_benchmark_serving
run_eval
