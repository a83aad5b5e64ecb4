#!/usr/bin/env bash
# Where a launcher runs, for a recipe of many nodes: the image on a node, the recipe's job to
# srt-slurm, then its end. LAUNCH_… and run.env say the rest: submit_srt.sh RUN_DIR RECIPE
set -euo pipefail

run_dir=$1 recipe=$2
source "${BASH_SOURCE[0]%/*}/phase_lib.sh"

# Not here: the nodes may be of another architecture than this machine.
say_phase image
run import_image srun --job-name="$LAUNCH_NAME" --partition="$LAUNCH_PARTITION" \
  --account="$LAUNCH_ACCOUNT" --nodes=1 --ntasks=1 --time=60 --export=PATH,HOME \
  /bin/bash "$RUNNERS/import_image.sh" "$LAUNCH_IMAGE_URI" "$LAUNCH_IMAGE"
say_phase starting
export LAUNCH_JOB=$run_dir/job.yaml
if [[ ${DRY_RUN-} != 1 ]]; then
  (
    python=$HARNESS_PYTHON # of this machine; run.env says the one of the image
    set -a
    # shellcheck source=/dev/null # made by utils/runners/prepare.py
    source "$run_dir/run.env"
    HARNESS_PYTHON=$python
    exec bash "$recipe"
  )
  cd "$run_dir" # srtctl looks for srtslurm.yaml here
fi
run submit srtctl apply --file "$LAUNCH_JOB"
run wait "${PYTHON[@]}" -m utils.runners.wait_job --name "$LAUNCH_NAME" --run-dir "$run_dir"
