#!/usr/bin/env bash
# GLM-5.2 in fp4 on B200 with vLLM.
# Page: https://recipes.vllm.ai (models/zai-org/GLM-5.2.yaml at 8959cf64)
# Flags: vllm 0.32.0, 0.27.1
# No --quantization and no --trust-remote-code, as on the page.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate mtp 5

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
  --reasoning-parser glm45
  --kv-cache-dtype fp8_e4m3
  "${speculation_args[@]}"
)

serve vllm serve "$MODEL_PATH" "${args[@]}"
run_benchmark_serving
run_eval
