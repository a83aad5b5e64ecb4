#!/usr/bin/env bash
# NVIDIA's GB300 cluster: launch_gb300-nv.sh <recipe's name or path>. Racks of four-GPU nodes, on which
# srt-slurm (srtctl on PATH, SRTCTL_ROOT its checkout) starts prefill and decode workers.
set -euo pipefail
source "$(dirname "$0")/runner_lib.sh"

hw=gb300
partition=batch_1
account=benchmark
gpus_per_node=4
container=pyxis
image_dir=${IMAGE_DIR:-/home/sa-shared/gharunners/squash}
runs_dir=${RUNS_DIR:-~/specgate-runs}

launch_with_srt "$@"
