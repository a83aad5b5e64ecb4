#!/usr/bin/env bash
# Collect a golden curve inside a container, as `python3 -m utils.golden collect` does:
#   collect.sh dsv4 --output-dir DIR --hardware "8x B300"
# A second call goes on where the first one ended. DRY_RUN=1 prints the commands of every cell.
set -euo pipefail

source "$(dirname "$0")/../harness.sh"
export HARNESS_PYTHON
exec "$HARNESS_PYTHON" "$HARNESS_ROOT/utils/golden/__main__.py" collect "$@"
