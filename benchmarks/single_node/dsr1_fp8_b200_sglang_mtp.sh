#!/usr/bin/env bash
# DeepSeek-R1-0528 in fp8 on B200 with SGLang.
# Page: https://docs.sglang.io/cookbook (deepseek-r1-advanced-deployment.jsx as of 0fc5a8ac)
# Flags: sglang 0.5.23, 0.5.18
# DeepGEMM's just-in-time kernels are off, as on the page. InferenceX runs it on 8 GPUs only when
# it speculates.
# N is of the page's basic cell, the advanced one has no MTP; InferenceX drafts 2.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate mtp 3

engine_env=(
  SGLANG_ENABLE_JIT_DEEPGEMM=false
)
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
  --fp8-gemm-backend flashinfer_trtllm
  --mem-fraction-static 0.82
  --chunked-prefill-size 32768
  --max-prefill-tokens 32768
  --max-running-requests 128
  --cuda-graph-max-bs-decode 128
  --scheduler-recv-interval 10
  "${speculation_args[@]}"
)

serve sglang serve "${args[@]}"
run_benchmark_serving
run_eval
