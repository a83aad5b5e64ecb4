#!/usr/bin/env bash
# Run a recipe on this machine: launch_local.sh <recipe's name or path>.
# Engine: ENGINE_PYTHON's, else `vllm` on PATH, else the embedded CPU engine of `make setup`.
# Every variable of a recipe can be set beforehand; only what is unset gets a default here.
set -euo pipefail
source "$(dirname "$0")/runner_lib.sh"

find_recipe "$@"

# Under the supervisor and waited for, so that an interrupted launcher leaves nothing behind.
run() { # <module> <argument>...
  local -ri parent=$BASHPID
  "${PYTHON[@]}" -I "$RUNNER_ROOT/utils/serving/supervise.py" --parent-pid "$parent" \
    -- "$HARNESS_PYTHON" -m "$@" &
  wait "$!"
}

if [[ -z ${ENGINE_PYTHON-} && ${DRY_RUN-} != 1 ]] && ! type -P vllm >/dev/null; then
  found=$(run utils.embedded_engine.install --print-env)
  mapfile -t lines <<<"$found"
  for line in "${lines[@]}"; do export "${line?}"; done
fi

export MODEL=${MODEL:-HuggingFaceTB/SmolLM2-135M-Instruct}
export TP=${TP:-1} CONC=${CONC:-4} ISL=${ISL:-128} OSL=${OSL:-32}
export MAX_MODEL_LEN=${MAX_MODEL_LEN:-2048}
export RUN_EVAL=${RUN_EVAL:-true} SERVER_READY_TIMEOUT_S=${SERVER_READY_TIMEOUT_S:-600}
export SPEEDBENCH_DIR=${SPEEDBENCH_DIR:-/tmp/speed_bench_data}
if [[ ${DRY_RUN-} != 1 ]]; then
  RESULT_DIR=${RESULT_DIR:-$(mktemp -d /tmp/specgate.XXXXXX)}
  export RESULT_DIR
  printf 'results: %s\n' "$RESULT_DIR"
  name=${recipe##*/}
  run utils.evals.speedbench prepare --model-prefix "${MODEL_PREFIX:-${name%%_*}}" \
    --output-dir "$SPEEDBENCH_DIR"
  status=0
  # shellcheck disable=SC2310 # it waits for one process, whose status is looked at
  run utils.recipes doctor "$recipe" || status=$?
  ((status == 0 || status == 3)) || exit "$status" # 3: something couldn't be looked at
fi
exec bash "$recipe"
