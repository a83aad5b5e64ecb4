#!/usr/bin/env bash
# MiniMax-M3 in fp4 on B200 with vLLM.
# Page: https://recipes.vllm.ai (models/MiniMaxAI/MiniMax-M3.yaml at 8959cf64)
# Flags: vllm 0.32.0, 0.27.1
# Blocks of 128 are mandatory. Text only. The TensorRT-LLM attention and the cutlass decode kernel
# are the page's for NVFP4.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate eagle3 3 draft_model=Inferact/MiniMax-M3-EAGLE3 attention_backend=FLASH_ATTN

engine_env=(
  VLLM_FLOAT32_MATMUL_PRECISION=high
  VLLM_FLASHINFER_ALLREDUCE_BACKEND=trtllm
)
parallel=(--tensor-parallel-size "$TP" --data-parallel-size "$DP_SIZE")
[[ $DP_ATTENTION != true ]] || parallel=(--tensor-parallel-size 1 --data-parallel-size "$TP")
[[ $EP_SIZE == 1 ]] || parallel+=(--enable-expert-parallel)
attention='{"backend": "FLASHINFER", "use_trtllm_attention": true, "indexer_kv_dtype": "fp8",
  "minimax_m3_msa_decode_backend": "cutlass"}'
args=(
  --served-model-name "$MODEL"
  --host 127.0.0.1
  --port "$PORT"
  --max-model-len "$MAX_MODEL_LEN"
  --no-enable-prefix-caching
  "${parallel[@]}"
  --trust-remote-code
  --reasoning-parser minimax_m3
  --language-model-only
  --block-size 128
  --kv-cache-dtype fp8
  --attention-config "$attention"
  "${speculation_args[@]}"
)

serve vllm serve "$MODEL_PATH" "${args[@]}"
run_benchmark_serving
run_eval
