# shellcheck shell=bash
# What launchers share. A launcher states what is true of its cluster, then calls one of
# launch_on_slurm, launch_with_srt, launch_in_docker; the last command of each takes its place, so
# that a signal reaches whoever cleans up. What is checked, written or asked is Python.

# shellcheck source=../benchmarks/harness.sh
source "${BASH_SOURCE[0]%/*}/../benchmarks/harness.sh"
export HARNESS_PYTHON
readonly RUNNERS=$HARNESS_ROOT/runners PYTHON
cluster=${0##*/launch_}
readonly cluster=${cluster%.sh}

# What a launcher states, with what is true of most clusters.
hw=                # as recipes' names say it
partition=         # Slurm's
account=           # Slurm's
gpus_per_node=8    # of which one recipe takes TP times DP_SIZE
image_dir=         # where the nodes keep image files
extra_mounts=()    # SOURCE:TARGET[:ro] that its containers need
container=none     # pyxis, docker; none runs on the node itself
time_limit_min=480 # of an allocation
runs_dir=/tmp      # a folder that the launcher and all nodes see

# Set by prepare, see utils/runners/prepare.py.
declare recipe run_dir result_dir job_name gpus image_uri image_file
mounts=()   # SOURCE:TARGET[:ro]
settings=() # NAME=value of the recipe, without secrets
facility=() # how the job is stopped: utils/runners/job.py
inside=()   # what a dry run asks beside it

# Find a recipe by name or path.
find_recipe() { # <name or path>
  (($# == 1)) || die "name one recipe: ${0##*/} <name or path>"
  local folder
  recipe=$1
  for folder in single_node multi_node; do
    [[ -f $recipe ]] || recipe=$HARNESS_ROOT/benchmarks/$folder/$(basename "$1" .sh).sh
  done
  [[ -f $recipe ]] || die "there is no recipe $1; see python3 -m utils.recipes list"
}

# Check everything that can be checked before anything is held.
prepare() { # <name or path of the recipe>
  local -a words
  local word
  find_recipe "$@"
  _capture words -m utils.runners.prepare --recipe "$recipe" --cluster "$cluster" --hw "$hw" \
    --gpus-per-node "$gpus_per_node" --container "$container" --image-dir "$image_dir" \
    --runs-dir "$runs_dir"
  for word in "${words[@]}"; do
    case $word in
      mount=*) mounts+=("${word#*=}") ;;
      setting=*) settings+=("${word#*=}") ;;
      *) printf -v "${word%%=*}" '%s' "${word#*=}" ;;
    esac
  done
  mounts+=("${extra_mounts[@]}")
}

# Run a command to its end and judge it; DRY_RUN=1 prints it, then what runs in it.
run_job() { # <argv>...
  if [[ ${DRY_RUN-} != 1 ]]; then
    exec "${PYTHON[@]}" -m utils.runners.job --run-dir "$run_dir" --result-dir "$result_dir" \
      "${facility[@]}" -- "$@"
  fi
  "${PYTHON[@]}" -m utils.recipes.dry_run launch "$@"
  ((${#inside[@]} == 0)) || bash "${inside[@]}"
  exec env "${settings[@]}" bash "$recipe"
}

# One node of a Slurm cluster, a container on it.
launch_on_slurm() { # <recipe>
  prepare "$@"
  facility=(--slurm "$job_name")
  inside=("$RUNNERS/in_allocation.sh" "$run_dir" "$result_dir" "$container" "$image_uri"
    "$image_file" "$recipe" "${mounts[@]}")
  run_job salloc --quiet --job-name="$job_name" --partition="$partition" --account="$account" \
    --nodes=1 --gres="gpu:$gpus" --exclusive --mem=0 --time="$time_limit_min" \
    --kill-command=TERM bash "${inside[@]}"
}

# Many nodes of a Slurm cluster, by srt-slurm: a job of prefill and decode workers.
launch_with_srt() { # <recipe>
  find_recipe "$@"
  [[ ${recipe##*/} == *_dynamo-* ]] || die "${recipe##*/} takes one node; this launcher starts many"
  prepare "$@"
  facility=(--slurm "$job_name")
  inside=("$RUNNERS/submit_srt.sh" "$run_dir" "$recipe")
  local IFS=,
  export LAUNCH_NAME=$job_name LAUNCH_PARTITION=$partition LAUNCH_ACCOUNT=$account
  export LAUNCH_GPUS_PER_NODE=$gpus_per_node LAUNCH_TIME_LIMIT_MIN=$time_limit_min
  export LAUNCH_IMAGE_URI=$image_uri LAUNCH_IMAGE=$image_file LAUNCH_MOUNTS=${mounts[*]}
  export LAUNCH_STEP="bash $RUNNERS/step.sh $run_dir $recipe"
  IFS=' '
  run_job bash "${inside[@]}"
}

# This machine's docker.
launch_in_docker() { # <recipe>
  prepare "$@"
  local mount user group
  local -a volumes=()
  for mount in "${mounts[@]}"; do volumes+=(--volume "$mount"); done
  user=$(id -u)
  group=$(id -g)
  # As the caller, who has no name in the image: what asks for one gets it from USER.
  run_job docker run --rm --init --cidfile "$run_dir/container_id" --user "$user:$group" \
    --env HOME=/tmp --env USER=specgate --gpus all --network host --ipc host \
    --ulimit memlock=-1 --ulimit nofile=1048576 "${volumes[@]}" \
    --entrypoint /bin/bash "$IMAGE" "$RUNNERS/step.sh" "$run_dir" "$recipe"
}
