#!/usr/bin/env bash
# The step of a launch, in its container: step.sh RUN_DIR RECIPE. Takes run.env, leaves the recipe's
# exit status, and nothing alive.
set -euo pipefail

run_dir=$1 recipe=$2
printf 'running\n' >"$run_dir/phase"
set -a
# shellcheck source=/dev/null # made by utils/runners/prepare.py
source "$run_dir/run.env"
set +a
exec "$HARNESS_PYTHON" -I "${BASH_SOURCE[0]%/*}/../utils/serving/supervise.py" --grace-s 6 \
  --status-file "$run_dir/status" -- bash "$recipe"
