#!/usr/bin/env bash
# Kimi-K3, whose own weights are MXFP4, in fp4 on B300 with SGLang.
# Page: https://docs.sglang.io/cookbook (configs/moonshotai/kimi-k3.jsx as of f795573d)
# Flags: sglang 0.5.23, 0.5.18
# The page's low-latency cell, which it doesn't call verified. 8 GPUs (TP=8).
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN
[[ $DP_ATTENTION == false && $EP_SIZE == 1 ]] || die 'topology: the page has TP alone'

parallel=(--tp-size "$TP" --dp-size "$DP_SIZE")
args=(
  --model-path "$MODEL_PATH"
  --served-model-name "$MODEL"
  --host 127.0.0.1
  --port "$PORT"
  --context-length "$MAX_MODEL_LEN"
  --enable-metrics
  --disable-radix-cache
  "${parallel[@]}"
  --trust-remote-code
  --reasoning-parser kimi_k3
  --disable-custom-all-reduce
  --enable-symm-mem
  --mem-fraction-static 0.85
)

serve sglang serve "${args[@]}"
run_benchmark_serving
run_eval
