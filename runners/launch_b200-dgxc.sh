#!/usr/bin/env bash
# DGX Cloud's B200 cluster: launch_b200-dgxc.sh <recipe's name or path>. Slurm and pyxis, eight GPUs
# a node, weights on Lustre. CONTAINER=none runs on the node itself.
set -euo pipefail
source "$(dirname "$0")/runner_lib.sh"

hw=b200
partition=gpu-2
account=benchmark
container=${CONTAINER:-pyxis}
image_dir=${IMAGE_DIR:-/home/sa-shared/containers}
runs_dir=${RUNS_DIR:-~/specgate-runs}

launch_on_slurm "$@"
