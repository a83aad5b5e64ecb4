#!/usr/bin/env bash
# Kimi-K3, whose own weights are MXFP4, in fp4 on B300 with vLLM.
# Page: https://recipes.vllm.ai (models/moonshotai/Kimi-K3.yaml at 8959cf64)
# Flags: vllm 0.32.0, 0.27.1
# The page turns prefix caching on; here a repeated prompt costs what it costs. Needs CUDA 13, 8
# GPUs (TP=8).
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN
[[ $DP_ATTENTION == false && $EP_SIZE == 1 ]] || die 'topology: the page has TP alone'

speculate dspark 8 draft_model=RedHatAI/Kimi-K3-speculator.dspark \
  draft_sample_method=probabilistic rejection_sample_method=block

engine_env=(
  VLLM_ALLREDUCE_USE_FLASHINFER=1
  VLLM_ENGINE_READY_TIMEOUT_S=3600
  VLLM_USE_V2_MODEL_RUNNER=1
  VLLM_USE_RUST_FRONTEND=1
)
parallel=(--tensor-parallel-size "$TP" --data-parallel-size "$DP_SIZE")
args=(
  --served-model-name "$MODEL"
  --host 127.0.0.1
  --port "$PORT"
  --max-model-len "$MAX_MODEL_LEN"
  --no-enable-prefix-caching
  "${parallel[@]}"
  --trust-remote-code
  --reasoning-parser kimi_k3
  --gpu-memory-utilization 0.95
  --load-format fastsafetensors
  --no-enable-flashinfer-autotune
  --kv-cache-dtype fp8
  --attention-config '{"use_prefill_query_quantization": true, "mla_prefill_backend": "flashinfer"}'
  "${speculation_args[@]}"
)

serve vllm serve "$MODEL_PATH" "${args[@]}"
run_benchmark_serving
run_eval
