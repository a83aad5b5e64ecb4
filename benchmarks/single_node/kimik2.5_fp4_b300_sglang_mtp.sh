#!/usr/bin/env bash
# Kimi-K2.5 in fp4 on B300 with SGLang.
# Page: https://docs.sglang.io/cookbook (configs/moonshotai/kimi-k25.jsx as of 146351bb)
# Flags: sglang 0.5.23, 0.5.18
# The attention backend is the page's for B300; its fp8 KV cache is said of B200 only.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate eagle3 3 draft_model=lightseekorg/kimi-k2.5-eagle3-mla

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
  --trust-remote-code
  --reasoning-parser kimi_k2
  --attention-backend tokenspeed_mla
  "${speculation_args[@]}"
)

serve sglang serve "${args[@]}"
run_benchmark_serving
run_eval
