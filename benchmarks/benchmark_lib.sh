# shellcheck shell=bash
# The verbs of a recipe, in order: require_env, speculate (in a _mtp recipe), serve,
# run_benchmark_serving, run_eval. This file starts, watches and stops processes; whatever parses,
# measures, writes a file or speaks HTTP is Python under utils/.

# shellcheck source=harness.sh
source "${BASH_SOURCE[0]%/*}/harness.sh"

# Only our own processes get this environment, the engine never.
PYTHON=("${PYTHON[@]::3}" 'no_proxy=*' 'NO_PROXY=*' "$HARNESS_PYTHON")
SUPERVISOR=("$HARNESS_PYTHON" -I "$HARNESS_ROOT/utils/serving/supervise.py" --parent-pid "$$")
RECIPE=${BASH_SOURCE[-1]}
readonly HARNESS_PYTHON PYTHON SUPERVISOR RECIPE

log() { printf '[%(%H:%M:%S)T] %s\n' -1 "$*" >&2; }

# shellcheck disable=SC2034 # for recipes
speculation_args=() # set by speculate
engine_env=()       # set by a recipe: NAME=value words for its engine alone
synthetic_env=()    # set by speculate, for SYNTHETIC_ACCEPTANCE=true
speculation=()      # what the recipe said to speculate
al_args=()          # further arguments of the AL command
target=()           # how clients find the server, once the settings are known
server_pid=         # supervisor of the engine while it lives
server_log=         # set once an engine was started
client_pid=         # supervisor of the client while it lives
client_status=0     # of the last client
completed_concs=()  # eval points that came back
failed_steps=()     # steps that did not
measured=false      # nothing came back yet
gate_status=        # of the gate, once it was asked
summary_due=false   # evals were asked for, and meta_env.json isn't written

# Check the environment and fill in its defaults.
require_env() { # <name>...
  local -a settings
  local setting
  _capture settings -m utils.recipes.settings --recipe "$RECIPE" "$@"
  for setting in "${settings[@]}"; do export "${setting?}"; done
  target=(--base-url "http://127.0.0.1:$PORT" --model "$MODEL" --model-prefix "$MODEL_PREFIX"
    --plan "$RESULT_DIR/plan.json" --thinking "$THINKING")
}

# Say method and N; the engine's arguments that follow are in the array speculation_args.
speculate() { # <method> <N> [key=value]...
  ((${#target[@]})) || die 'speculate: call require_env first'
  (($# >= 2 && ${#speculation[@]} == 0)) || die 'speculate: say <method> <N>, once in a recipe'
  speculation=("$@")
  local -ra said=(--engine "$ENGINE_FAMILY" --label "${SPEC_DECODING-}" --method "$1" --num "$2"
    -- "${@:3}")
  _capture speculation_args -m utils.recipes.speculate "${said[@]}"
  [[ $SYNTHETIC_ACCEPTANCE != true ]] ||
    _capture synthetic_env -m utils.recipes.speculate --environment "${said[@]}"
  export SPEC_DECODING=$1 NUM_SPEC_TOKENS=$2
}

# Write the plan, start the engine and wait until it generates.
serve() { # <argv>...
  ((${#target[@]})) || die 'serve: call require_env first'
  [[ -z $server_log ]] || die 'serve: a server was already started'
  "${PYTHON[@]}" -m utils.recipes.run_plan --recipe "$RECIPE" -- "${speculation[@]}"
  export SPEC_DECODING=${SPEC_DECODING:-none}
  server_log=$RESULT_DIR/server.log
  _start_server "${engine_env[@]}" "${synthetic_env[@]}" "$@"
  _run_client ready -m utils.serving.ready "${target[@]:0:4}" --timeout-s "$SERVER_READY_TIMEOUT_S" \
    --engine "$ENGINE" --record "$RESULT_DIR/server_command.json" --server-pid "$server_pid"
  ((client_status == 0)) || exit "$((client_status == 2 ? 2 : 3))"
}

run_benchmark_serving() {
  local -a points
  [[ -n $server_log ]] || die 'run_benchmark_serving: call serve first'
  [[ $EVAL_ONLY != true ]] || return 0
  read -ra points <<<"$CONC"
  _beside throughput -m utils.serving.bench "${target[@]}" --engine "$ENGINE" --isl "$ISL" \
    --osl "$OSL" --concurrency "${points[@]}" --client "$SERVING_CLIENT" "--slo=$SLO" \
    --prompts-dir "$SPEEDBENCH_DIR" --server-pid "$server_pid" \
    --output "$RESULT_DIR/$RESULT_FILENAME.json"
}

run_eval() {
  local -a points
  local point
  [[ -n $server_log ]] || die 'run_eval: call serve first'
  [[ $RUN_EVAL == true || $EVAL_ONLY == true ]] || return 0
  read -ra points <<<"$EVAL_CONCURRENT_REQUESTS"
  for point in "${points[@]}"; do run_lm_eval "$point"; done
  [[ $SPEC_DECODING == none ]] || run_speedbench_al_eval "${al_args[@]}"
  [[ $LOSSLESS != true ]] || run_greedy_outputs
  stop_server
  append_lm_eval_summary
  _print_verdict
}

run_lm_eval() { # <concurrency>
  _beside lm_eval -m utils.evals.lm_eval_run "${target[@]}" --concurrency "$1" \
    --result-dir "$RESULT_DIR" --server-pid "$server_pid"
  ((client_status)) || completed_concs+=("$1")
}

run_speedbench_al_eval() { # <argument of measure>...
  _beside speedbench_al -m utils.evals.speedbench_al measure "${target[@]}" --engine "$ENGINE" \
    --num-spec-tokens "$NUM_SPEC_TOKENS" --prompts-dir "$SPEEDBENCH_DIR" \
    --output-dir "$RESULT_DIR" --server-pid "$server_pid" "$@"
}

run_greedy_outputs() {
  _beside greedy -m utils.serving.greedy "${target[@]}" --engine "$ENGINE" \
    --prompts-dir "$SPEEDBENCH_DIR" --output "$RESULT_DIR/greedy_outputs.json"
}

append_lm_eval_summary() {
  summary_due=false
  _run_client meta_env -m utils.evals.meta_env --plan "$RESULT_DIR/plan.json" \
    --isl "$ISL" --osl "$OSL" --conc "${CONC##* }" --output "$RESULT_DIR/meta_env.json" \
    "${completed_concs[@]}"
  ((client_status == 0)) || failed_steps+=(meta_env)
}

stop_server() {
  _stop ${server_pid:+"$server_pid"}
  server_pid=
}

_print_verdict() {
  _run_client gate "$HARNESS_ROOT/utils/evals/validate_scores.py" --results-dir "$RESULT_DIR"
  gate_status=$client_status
  _run_client report -m utils.report "$RESULT_DIR"
  return "$gate_status"
}

# The engine's output goes to its log: a process left behind must not hold the CI step's pipe open.
_start_server() { # <NAME=value>... <argv>...
  local -a words
  _capture words -m utils.serving.launch --port "$PORT" --python-path "${PYTHONPATH-}" \
    --record "$RESULT_DIR/server_command.json" "$@"
  [[ $RUN_EVAL != true && $EVAL_ONLY != true ]] || summary_due=true
  log "results in $RESULT_DIR"
  "${SUPERVISOR[@]}" --log "$server_log" --status-file "$server_log.status" -- \
    env "${words[@]}" &
  server_pid=$!
}

# Run a client that makes no sense without a server; client_status is 3 when there is none any more.
_beside() { # <step> <argument of python>...
  client_status=3
  [[ -z $server_pid ]] || _run_client "$@"
  if ((client_status)); then failed_steps+=("$1"); else measured=true; fi
}

# Run a client; if there is a server, whoever ends first decides.
_run_client() { # <step> <argument of python>...
  local ended=
  client_status=0
  "${SUPERVISOR[@]}" -- "${PYTHON[@]}" "${@:2}" &
  client_pid=$!
  wait -n -p ended ${server_pid:+"$server_pid"} "$client_pid" || client_status=$?
  if [[ $ended == "$client_pid" ]]; then
    client_pid=
    ((client_status)) || return 0
    log "$1 ended with status $client_status"
    ((client_status <= 3)) || client_status=3
    [[ -n $server_pid ]] || return 0
    sleep 1 & # a dying server drops its clients a moment before its end is known
    wait "$!"
    [[ -s $server_log.status ]] || return 0
  else
    server_pid=
  fi
  client_status=3
  _bury_server "$1"
}

_bury_server() { # <step>
  local status=unknown
  _stop ${client_pid:+"$client_pid"} ${server_pid:+"$server_pid"}
  client_pid=
  server_pid=
  [[ ! -s $server_log.status ]] || read -r status <"$server_log.status"
  [[ ! -f $server_log ]] || tail -n 40 -- "$server_log" >&2
  log "error: the server ended with status $status during $1; its log ends above"
}

# A supervisor ends what it watches within seconds; all are asked before one is waited for.
_stop() { # <pid of a supervisor>...
  local pid
  for pid; do kill -TERM "$pid" 2>/dev/null || log "stop: $pid had just ended"; done
  for pid; do wait "$pid" || log "stop: $pid ended with status $?"; done
}

# bash ends with statuses of its own, 1 for an unset variable, 127 for an unknown command; here 1 says
# that a measured value failed, so only the gate's counts.
_on_exit() {
  local -i status=$?
  trap '' HUP INT TERM # a second signal must not cut this short
  trap - EXIT
  _stop ${client_pid:+"$client_pid"} ${server_pid:+"$server_pid"}
  server_pid=
  if [[ $summary_due == true ]]; then
    append_lm_eval_summary
    ((status)) || failed_steps+=(run_eval)
  fi
  [[ $measured == true || $status != 0 ]] || failed_steps+=('everything, nothing was measured')
  ((${#failed_steps[@]} == 0)) || log "failed: ${failed_steps[*]}"
  case $status in
    0) ((${#failed_steps[@]} == 0)) || status=3 ;;
    2 | 3 | 129 | 130 | 143 | "$gate_status") ;;
    *) status=$((${#server_log} ? 3 : 2)) ;;
  esac
  exit "$status"
}

# A dry run prints the command of whatever it would start.
if [[ ${DRY_RUN-} == 1 ]]; then
  _print_step() { "${PYTHON[@]}" -m utils.recipes.dry_run "$@"; }
  _start_server() { server_pid=SERVER_PID && _print_step serve "$@"; }
  _run_client() { client_status=0 && _print_step "$1" "${PYTHON[@]:1}" "${@:2}"; }
  _stop() { :; }
fi
trap _on_exit EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
