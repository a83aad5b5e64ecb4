# shellcheck shell=bash
# What a launch's command has beside its steps: how far it is, which decides whose fault an early
# end is (utils/runners/job.py), and the dry run. Its run_dir is the caller's.

: "${run_dir:?}"
# shellcheck source=../benchmarks/harness.sh
source "${BASH_SOURCE[0]%/*}/../benchmarks/harness.sh"
# shellcheck disable=SC2034 # for whoever sources this
readonly RUNNERS=$HARNESS_ROOT/runners

say_phase() { printf '%s\n' "$1" >"$run_dir/phase"; }
run() { # <step> <argv>...
  "${@:2}"
}
if [[ ${DRY_RUN-} == 1 ]]; then
  say_phase() { :; }
  run() { "${PYTHON[@]}" -m utils.recipes.dry_run "$@"; }
fi
