#!/usr/bin/env bash
# Inside a Slurm allocation, where the launcher runs: the image, the step, a look at the node.
# in_allocation.sh RUN_DIR RESULT_DIR pyxis|none IMAGE_URI IMAGE_FILE RECIPE [MOUNT]...
set -euo pipefail

run_dir=$1 result_dir=$2 container=$3 image_uri=$4 image_file=$5 recipe=$6
mounts=("${@:7}")
source "${BASH_SOURCE[0]%/*}/phase_lib.sh"

[[ ${DRY_RUN-} == 1 ]] || printf '%s\n' "$SLURM_JOB_ID" >"$run_dir/job_id"

# Of the launcher's environment the step gets run.env and nothing else.
step=(srun --nodes=1 --ntasks=1 --export=NONE --chdir=/ --cpu-bind=none)
if [[ $container == pyxis ]]; then
  say_phase image
  run import_image srun --nodes=1 --ntasks=1 --export=PATH,HOME \
    /bin/bash "$RUNNERS/import_image.sh" "$image_uri" "$image_file"
  IFS=,
  step+=("--container-image=$image_file" "--container-mounts=${mounts[*]}"
    --no-container-mount-home --no-container-entrypoint --container-remap-root)
fi
say_phase starting
set +e # the step's status is in its own file, and the node is looked at either way
run step "${step[@]}" /bin/bash "$RUNNERS/step.sh" "$run_dir" "$recipe"
run node_state srun --nodes=1 --ntasks=1 --overlap --export=PATH --time=1 \
  --output="$result_dir/node.log" /bin/bash "$RUNNERS/node_state.sh"
