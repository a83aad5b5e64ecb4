#!/usr/bin/env bash
# One cell of a golden curve: a fresh vLLM that drafts NUM_SPEC_TOKENS, one AL measurement, no verdict.
# What is served, and by which method it speculates, says the row COLLECTION of models.yaml; N and
# THINKING are the driver's (collect.sh). Arguments go on to `speedbench_al measure`.
# No prefix cache, which would pad first steps; figures per request, which a paired gate needs.
set -euo pipefail
source "$(dirname "$0")/../benchmark_lib.sh"

require_env COLLECTION NUM_SPEC_TOKENS THINKING

method=() row_args=()
_capture method -m utils.golden.rows "$COLLECTION" speculate
_capture engine_env -m utils.golden.rows "$COLLECTION" environment
_capture row_args -m utils.golden.rows "$COLLECTION" arguments
speculate "${method[0]}" "$NUM_SPEC_TOKENS" "${method[@]:1}"

args=(
  --served-model-name "$MODEL"
  --host 127.0.0.1
  --port "$PORT"
  --tensor-parallel-size "$TP"
  --max-model-len "$MAX_MODEL_LEN"
  --no-enable-prefix-caching
  --enable-per-request-metrics
  --per-request-spec-decode-metrics summary
  "${row_args[@]}"
  "${speculation_args[@]}"
)
[[ $EP_SIZE == 1 ]] || args+=(--enable-expert-parallel)

serve vllm serve "$MODEL_PATH" "${args[@]}"
run_speedbench_al_eval --no-gate "$@"
