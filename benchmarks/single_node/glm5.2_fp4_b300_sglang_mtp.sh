#!/usr/bin/env bash
# GLM-5.2 in fp4 on B300 with SGLang.
# Page: https://docs.sglang.io/cookbook (configs/zai-org/glm-5.2.jsx as of 0415ca35)
# Flags: sglang 0.5.23, 0.5.18
# The page's low-latency cell, with DP attention its balanced one; without the former's limit of 16
# requests, because concurrency comes from the environment.
# With DP attention the page drafts 2; one N here, so that both topologies have one golden. The
# attention mode there avoids a deadlock while graphs are captured.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate mtp 5
[[ $DP_ATTENTION != true ]] || speculation_args+=(--speculative-attention-mode decode)

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
  --chunked-prefill-size 8192
  --mem-fraction-static 0.85
  "${speculation_args[@]}"
)
[[ $DP_ATTENTION == true ]] || args+=(--kv-cache-dtype fp8_e4m3 --max-prefill-tokens 8192)
[[ $DP_ATTENTION == true ]] || args+=(--bf16-gemm-backend cutedsl)

serve sglang serve "${args[@]}"
run_benchmark_serving
run_eval
