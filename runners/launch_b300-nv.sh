#!/usr/bin/env bash
# NVIDIA's B300 cluster: launch_b300-nv.sh <recipe's name or path>. Slurm and pyxis, eight GPUs a
# node, weights on the nodes' own disks. CONTAINER=none runs on the node itself.
set -euo pipefail
source "$(dirname "$0")/runner_lib.sh"

hw=b300
partition=batch_1
account=benchmark
container=${CONTAINER:-pyxis}
image_dir=${IMAGE_DIR:-/data/squash}
runs_dir=${RUNS_DIR:-~/specgate-runs}

launch_on_slurm "$@"
