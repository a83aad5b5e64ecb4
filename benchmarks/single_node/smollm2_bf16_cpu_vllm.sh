#!/usr/bin/env bash
# SmolLM2-135M-Instruct in bf16 on a CPU with vLLM: the recipe that runs on any machine.
# Eager, because compiling takes longer than the run; no prefix cache, so that a repeated prompt
# costs what it costs.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

engine_env=(
  VLLM_CPU_KVCACHE_SPACE=2
  HF_HUB_OFFLINE=1
  VLLM_NO_USAGE_STATS=1
)
args=(
  --served-model-name "$MODEL"
  --host 127.0.0.1
  --port "$PORT"
  --tensor-parallel-size "$TP"
  --max-model-len "$MAX_MODEL_LEN"
  --max-num-seqs 32
  --enforce-eager
  --no-enable-prefix-caching
)

serve vllm serve "$MODEL_PATH" "${args[@]}"
run_benchmark_serving
run_eval
