#!/usr/bin/env bash
# DeepSeek-R1-0528 in fp4 on B200 with SGLang.
# Page: https://docs.sglang.io/cookbook (deepseek-r1-advanced-deployment.jsx as of 0fc5a8ac)
# Flags: sglang 0.5.23, 0.5.18
# Symmetric memory is an option of the page, left out because InferenceX drops it with MTP.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

parallel=(--tp-size "$TP" --dp-size "$DP_SIZE")
[[ $DP_ATTENTION != true ]] || parallel=(--tp-size "$TP" --attn-dp-size "$TP")
[[ $EP_SIZE == 1 ]] || parallel+=(--ep-size "$EP_SIZE")
args=(
  --model-path "$MODEL_PATH"
  --served-model-name "$MODEL"
  --host 127.0.0.1
  --port "$PORT"
  --context-length "$MAX_MODEL_LEN"
  --enable-metrics
  --disable-radix-cache
  "${parallel[@]}"
  --reasoning-parser deepseek-r1
  --kv-cache-dtype fp8_e4m3
  --mem-fraction-static 0.85
  --chunked-prefill-size 16384
  --max-running-requests 256
  --cuda-graph-max-bs-decode 256
  --scheduler-recv-interval 10
)

serve sglang serve "${args[@]}"
run_benchmark_serving
run_eval
