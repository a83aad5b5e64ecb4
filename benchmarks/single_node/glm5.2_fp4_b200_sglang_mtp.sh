#!/usr/bin/env bash
# GLM-5.2 in fp4 on B200 with SGLang.
# Page: https://docs.sglang.io/cookbook (configs/zai-org/glm-5.2.jsx as of 0415ca35)
# Flags: sglang 0.5.23, 0.5.18
# The page's low-latency cell, with DP attention its balanced one.
# With DP attention the page drafts 2; one N here, so that both topologies have one golden.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate mtp 5

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
  --reasoning-parser glm45
  --quantization modelopt_fp4
  "${speculation_args[@]}"
)
[[ $DP_ATTENTION == true ]] || args+=(--chunked-prefill-size 8192 --mem-fraction-static 0.85)
[[ $DP_ATTENTION != true ]] || args+=(--chunked-prefill-size 32768 --mem-fraction-static 0.92)
[[ $DP_ATTENTION != true ]] || args+=(--max-running-requests 256)

serve sglang serve "${args[@]}"
run_benchmark_serving
run_eval
