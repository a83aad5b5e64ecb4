#!/usr/bin/env bash
# NVIDIA's GB200 cluster: launch_gb200-nv.sh <recipe's name or path>. Racks of four-GPU nodes, on which
# srt-slurm (srtctl on PATH, SRTCTL_ROOT its checkout) starts prefill and decode workers.
set -euo pipefail
source "$(dirname "$0")/runner_lib.sh"

hw=gb200
partition='batch'
account=benchmark
gpus_per_node=4
container=pyxis
image_dir=${IMAGE_DIR:-/mnt/lustre01/users-public/sa-shared}
runs_dir=${RUNS_DIR:-~/specgate-runs}

launch_with_srt "$@"
