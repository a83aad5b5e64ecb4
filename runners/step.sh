#!/usr/bin/env bash
# The step of a launch, in its container: step.sh RUN_DIR RECIPE. Takes run.env, looks whether the
# node is fit, runs the recipe; leaves its exit status, and nothing alive.
set -euo pipefail

run_dir=$1 recipe=$2
set -a
# shellcheck source=/dev/null # made by utils/runners/prepare.py
source "$run_dir/run.env"
set +a
rm -- "$run_dir/run.env" # a token may be in it, and the launcher may be killed
printf 'doctor\n' >"$run_dir/phase"
# shellcheck source=../benchmarks/harness.sh
source "${BASH_SOURCE[0]%/*}/../benchmarks/harness.sh"
if [[ $recipe != */multi_node/* ]]; then # whose workers are elsewhere
  "${PYTHON[@]}" -m utils.recipes doctor --lenient "$recipe"
fi
printf 'running\n' >"$run_dir/phase"
exec "$HARNESS_PYTHON" -I "$HARNESS_ROOT/utils/serving/supervise.py" --grace-s 6 \
  --status-file "$run_dir/status" -- bash "$recipe"
