#!/usr/bin/env bash
# Qwen3.5-397B-A17B in fp4 on B200 with SGLang.
# Page: https://docs.sglang.io/cookbook (configs/qwen/qwen3.5.jsx as of 00a49ea2)
# Flags: sglang 0.5.23, 0.5.18
# The page's MTP needs the extra buffer for its recurrent states.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate mtp 3
speculation_args+=(--mamba-radix-cache-strategy extra_buffer)

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
  --reasoning-parser qwen3
  --quantization modelopt_fp4
  --fp4-gemm-backend flashinfer_cutlass
  --kv-cache-dtype fp8_e4m3
  --attention-backend trtllm_mha
  --moe-runner-backend flashinfer_trtllm
  --chunked-prefill-size 32768
  --max-prefill-tokens 32768
  --max-running-requests 128
  --mem-fraction-static 0.85
  "${speculation_args[@]}"
)

serve sglang serve "${args[@]}"
run_benchmark_serving
run_eval
