#!/usr/bin/env bash
# DeepSeek-V4-Pro, the preview checkpoint that keeps its MTP layer, in fp4 on B200 with SGLang.
# Page: https://docs.sglang.io/cookbook (configs/deepseek-ai/deepseek-v4.jsx as of 01c5c03f)
# Flags: sglang 0.5.23, 0.5.18
# The page's low-latency cell, with DP attention its balanced one.
# With DP attention the page drafts 1; one N here, so that both topologies have one golden.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate mtp 3

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
  --reasoning-parser deepseek-v4
  --moe-runner-backend flashinfer_mxfp4
  --disable-flashinfer-autotune
  --swa-full-tokens-ratio 0.1
  "${speculation_args[@]}"
)
deepep='{"normal_dispatch": {"num_sms": 96}, "normal_combine": {"num_sms": 96}}'
[[ $DP_ATTENTION == true ]] || args+=(--chunked-prefill-size 8192 --mem-fraction-static 0.90)
[[ $DP_ATTENTION != true ]] || args+=(--chunked-prefill-size 32768 --mem-fraction-static 0.92)
[[ $DP_ATTENTION != true ]] || args+=(--cuda-graph-max-bs-decode 256 --deepep-config "$deepep")

serve sglang serve "${args[@]}"
run_benchmark_serving
run_eval
