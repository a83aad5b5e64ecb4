#!/usr/bin/env bash
# This machine with docker: HW=b200 launch_docker.sh <recipe's name or path>. HW is what it has, and
# MODEL_PATH where the weights are.
set -euo pipefail
source "$(dirname "$0")/runner_lib.sh"

hw=${HW:?say which hardware this is, as in the recipe names: b200, b300}
container=docker
image_dir=/nowhere

launch_in_docker "$@"
