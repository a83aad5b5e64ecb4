#!/usr/bin/env bash
# Run a recipe on this machine: launch_local.sh <recipe's name or path>.
# Recipes for a CPU find everything here: the engine (ENGINE_PYTHON's, else `vllm` on PATH, else the
# embedded one of `make setup`) and a default for each variable that is unset.
set -euo pipefail
source "$(dirname "$0")/runner_lib.sh"

find_recipe "$@"

# Under the supervisor and waited for, so that an interrupted launcher leaves nothing behind.
run() { # <module> <argument>...
  local -ri parent=$BASHPID
  "${PYTHON[@]}" -I "$HARNESS_ROOT/utils/serving/supervise.py" --parent-pid "$parent" \
    -- "$HARNESS_PYTHON" -m "$@" &
  wait "$!" || exit "$(($? == 1 ? 3 : $?))" # a Python that can't start a module ends with 1, too
}

name=${recipe##*/}
if [[ $name == *_cpu_* ]]; then
  if [[ -z ${ENGINE_PYTHON-} && ${DRY_RUN-} != 1 ]] && ! type -P vllm >/dev/null; then
    found=$(run utils.embedded_engine.install --print-env)
    mapfile -t lines <<<"$found"
    for line in "${lines[@]}"; do export "${line?}"; done
  fi
  export MODEL=${MODEL:-HuggingFaceTB/SmolLM2-135M-Instruct}
  export TP=${TP:-1} CONC=${CONC:-4} ISL=${ISL:-128} OSL=${OSL:-32}
  export MAX_MODEL_LEN=${MAX_MODEL_LEN:-2048}
  export RUN_EVAL=${RUN_EVAL:-true} SERVER_READY_TIMEOUT_S=${SERVER_READY_TIMEOUT_S:-600}
fi
export SPEEDBENCH_DIR=${SPEEDBENCH_DIR:-/tmp/speed_bench_data}
if [[ ${DRY_RUN-} != 1 ]]; then
  RESULT_DIR=${RESULT_DIR:-$(mktemp -d /tmp/specgate.XXXXXX)}
  export RESULT_DIR
  printf 'results: %s\n' "$RESULT_DIR"
  run utils.evals.speedbench prepare --model-prefix "${MODEL_PREFIX:-${name%%_*}}" \
    --output-dir "$SPEEDBENCH_DIR"
  run utils.recipes doctor --lenient "$recipe"
fi
exec bash "$recipe"
