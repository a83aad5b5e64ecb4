# shellcheck shell=bash
# benchmark_lib.sh for a server of many nodes: serve_disaggregated takes the place of serve.
# Such a recipe runs twice. Where it is launched it writes a job for srt-slurm and ends; in that
# job, once the workers are up, it measures. TP is the GPUs of a decode worker, DP_SIZE their number.
# shellcheck source=benchmark_lib.sh
source "${BASH_SOURCE[0]%/*}/benchmark_lib.sh"

# shellcheck disable=SC2034 # for recipes; shellcheck looks one file deep, so it is said again here
speculation_args=() # set by speculate
prefill_env=()      # set by a recipe: NAME=value words for its prefill workers alone
prefill=()          # set by a recipe: the engine's options, of each role
decode=()

# Start prefill and decode workers, or, in their job, wait until they generate.
serve_disaggregated() { # <prefill workers> <GPUs of each>
  ((${#target[@]})) || die 'serve_disaggregated: call require_env first'
  ((${#prefill[@]} && ${#decode[@]} && $# == 2)) ||
    die 'serve_disaggregated: set prefill and decode, say <prefill workers> <GPUs of each>'
  if [[ ${DRY_RUN-} != 1 && -z ${SRT_FRONTEND_HOST-} ]]; then
    _write_job "$@"
  fi
  "${PYTHON[@]}" -m utils.recipes.run_plan --recipe "$RECIPE" -- "${speculation[@]}"
  export SPEC_DECODING=${SPEC_DECODING:-none}
  _find_workers
  server_log=$RESULT_DIR/server.log
  _watch_server
  _run_client ready -m utils.serving.remote wait "${target[@]:0:4}" "${al_args[@]}" \
    --timeout-s "$SERVER_READY_TIMEOUT_S"
  ((client_status == 0)) || exit "$((client_status == 2 ? 2 : 3))"
}

# Takes the recipe's place.
_write_job() { # <prefill workers> <GPUs of each>
  [[ -n ${LAUNCH_JOB-} ]] || die 'start it with runners/launch_<cluster>.sh: it takes nodes'
  exec "${PYTHON[@]}" -m utils.runners.srt --recipe "$RECIPE" --prefill-workers "$1" \
    --prefill-gpus "$2" --output "$LAUNCH_JOB" -- "${engine_env[@]}" "${prefill_env[@]}" \
    "${prefill[@]}" -- "${engine_env[@]}" "${decode[@]}"
}

# Clients ask the front end; acceptance is read from each decode worker's own page.
_find_workers() {
  local -a endpoints
  local endpoint
  target[1]=http://${SRT_FRONTEND_HOST-}:${SRT_FRONTEND_PORT-}
  IFS=, read -ra endpoints <<<"${SRT_DECODE_ENDPOINTS-}"
  for endpoint in "${endpoints[@]}"; do al_args+=(--metrics-url "http://$endpoint/metrics"); done
}

_watch_server() {
  [[ $RUN_EVAL != true && $EVAL_ONLY != true ]] || summary_due=true
  log "results in $RESULT_DIR"
  "${SUPERVISOR[@]}" --log "$server_log" --status-file "$server_log.status" -- "${PYTHON[@]}" \
    -m utils.serving.remote watch "${target[@]:0:4}" "${al_args[@]}" &
  server_pid=$!
}

# Where the workers' pages are out of reach, their logs say what was accepted, between two marks.
if [[ -n ${SRT_FRONTEND_HOST-} && -z ${SRT_DECODE_ENDPOINTS-} ]]; then
  run_speedbench_al_eval() {
    local -r logs=${SRT_LOG_DIR:-/logs}
    local -ra mark=(--thinking "$THINKING" --num-spec-tokens "$NUM_SPEC_TOKENS")
    _beside al_mark -m utils.evals.dynamo_logs mark start "$logs" "${mark[@]}" \
      --plan "$RESULT_DIR/plan.json"
    _beside speedbench_al -m utils.evals.speedbench_al measure "${target[@]}" --engine "$ENGINE" \
      --num-spec-tokens "$NUM_SPEC_TOKENS" --prompts-dir "$SPEEDBENCH_DIR" --metrics none \
      --no-gate --output-dir "$logs"
    _beside al_mark -m utils.evals.dynamo_logs mark end "$logs" "${mark[@]}" \
      --plan "$RESULT_DIR/plan.json"
    _beside al_from_logs -m utils.evals.dynamo_logs "$logs" "$RESULT_DIR" \
      --plan "$RESULT_DIR/plan.json"
  }
fi

# A dry run prints what a worker of each role gets; a rehearsal looks at one of them.
if [[ ${DRY_RUN-} == 1 ]]; then
  SRT_FRONTEND_HOST=FRONTEND SRT_FRONTEND_PORT=8000 SRT_DECODE_ENDPOINTS=DECODE_WORKER:7500
  _watch_server() {
    server_pid=SERVER_PID
    local -ra worker=(python3 -m "dynamo.$ENGINE_FAMILY")
    local -ra first=("${engine_env[@]}" "${prefill_env[@]}" "${worker[@]}" "${prefill[@]}")
    local -ra second=("${engine_env[@]}" "${worker[@]}" "${decode[@]}")
    case ${ROLE-} in
      prefill) _print_step serve "${first[@]}" ;;
      decode) _print_step serve "${second[@]}" ;;
      *)
        _print_step prefill "${first[@]}"
        _print_step decode "${second[@]}"
        ;;
    esac
  }
fi
