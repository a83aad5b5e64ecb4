#!/usr/bin/env bash
# Collect a golden curve inside a container, as `python3 -m utils.golden collect` does:
#   collect.sh dsv4 --output-dir DIR --hardware "8x B300"
# A second call goes on where the first one ended. DRY_RUN=1 prints the commands of every cell.
set -euo pipefail

root=$(cd -- "${BASH_SOURCE[0]%/*}/../.." && pwd)
if [[ -z ${HARNESS_PYTHON-} && -x $root/.venv/bin/python ]]; then
  HARNESS_PYTHON=$root/.venv/bin/python
fi
export HARNESS_PYTHON=${HARNESS_PYTHON:-python3}
exec "$HARNESS_PYTHON" "$root/utils/golden/__main__.py" collect "$@"
