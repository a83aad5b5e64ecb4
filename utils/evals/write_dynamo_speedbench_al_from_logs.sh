#!/usr/bin/env bash
# AL records from the logs of Dynamo's decode workers, with the marks and the AL command's record
# beside them: write_dynamo_speedbench_al_from_logs.sh LOGS_DIR OUT_DIR [--plan FILE]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${HARNESS_PYTHON:-python3}
exec env PYTHONPATH="$root" PYTHONDONTWRITEBYTECODE=1 "$python" -m utils.evals.dynamo_logs "$@"
