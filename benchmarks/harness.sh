# shellcheck shell=bash
# What every script starts from: how it dies, where the checkout is, which Python runs our modules.

die() { # <message>...
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# A script that carries on after a failed step would report numbers of a server that was never set
# up, so none is served outside strict mode.
[[ -o errexit && -o nounset && -o pipefail ]] ||
  die "put \"set -euo pipefail\" before the line that sources ${BASH_SOURCE[1]##*/}"
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)) ||
  die "bash $BASH_VERSION is too old, wait -n -p needs 5.1"
shopt -s inherit_errexit

HARNESS_ROOT=$(cd -- "${BASH_SOURCE[0]%/*}/.." && pwd)
if [[ -z ${HARNESS_PYTHON-} ]]; then
  HARNESS_PYTHON=python3
  [[ ! -x $HARNESS_ROOT/.venv/bin/python ]] || HARNESS_PYTHON=$HARNESS_ROOT/.venv/bin/python
fi
type -P -- "$HARNESS_PYTHON" >/dev/null ||
  die "HARNESS_PYTHON $HARNESS_PYTHON is no program; unset it, or name a Python from 3.10 on"
PYTHON=(env PYTHONPATH="$HARNESS_ROOT" PYTHONDONTWRITEBYTECODE=1 "$HARNESS_PYTHON")
readonly HARNESS_ROOT

# Fill an array with the NUL-terminated words that one of our modules prints. Its status comes as
# one more word: bash 5.2 now and then says 255 instead when it waits for a process substitution.
_capture() { # <array> <argument of python>...
  local -n captured=$1
  local -i status
  # shellcheck disable=SC2312 # the status is the last word
  mapfile -d '' -t captured < <("${PYTHON[@]}" "${@:2}" && printf '0\0' || printf '%s\0' "$?")
  ((${#captured[@]})) || return 3
  status=${captured[-1]}
  unset 'captured[-1]'
  ((status != 1)) || return 3 # a Python that can't start a module, and 1 is the gate's alone
  return "$status"
}
