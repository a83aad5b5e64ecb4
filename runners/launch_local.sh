#!/usr/bin/env bash
# Run a recipe on this machine: launch_local.sh <recipe's name or path>.
# Engine: ENGINE_PYTHON's, else `vllm` on PATH, else the embedded CPU engine of `make setup`.
# Every variable of a recipe can be set beforehand; only what is unset gets a default here.
set -euo pipefail

root=$(cd -- "$(dirname "$0")/.." && pwd)
recipe=${1:?name a recipe, e.g. smollm2_bf16_cpu_vllm_mtp}
[[ -f $recipe ]] || recipe=$root/benchmarks/single_node/$(basename "$recipe" .sh).sh
if [[ ! -f $recipe ]]; then
  printf 'error: there is no recipe %s\n' "$recipe" >&2
  exit 2
fi
if [[ -z ${HARNESS_PYTHON-} && -x $root/.venv/bin/python ]]; then
  HARNESS_PYTHON=$root/.venv/bin/python
fi
export HARNESS_PYTHON=${HARNESS_PYTHON:-python3}

# Under the supervisor and waited for, so that an interrupted launcher leaves nothing behind.
run() { # <module> <argument>...
  local -ri parent=$BASHPID
  PYTHONPATH=$root "$HARNESS_PYTHON" -I "$root/utils/serving/supervise.py" --parent-pid "$parent" \
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
  run utils.recipes doctor "$recipe" || status=$?
  ((status == 0 || status == 3)) || exit "$status" # 3: something couldn't be looked at
fi
exec bash "$recipe"
