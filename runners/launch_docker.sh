#!/usr/bin/env bash
# This machine with docker: NODE_HW=b200 launch_docker.sh <recipe's name or path>. NODE_HW
# is what it has, MODEL_PATH where the weights are.
set -euo pipefail
source "$(dirname "$0")/runner_lib.sh"

hw=${NODE_HW-}
[[ -n $hw ]] || die 'set NODE_HW, as the recipes name hardware: b200, b300'
container=docker
image_dir=/nowhere

launch_in_docker "$@"
