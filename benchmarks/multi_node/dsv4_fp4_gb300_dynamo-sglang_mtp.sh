#!/usr/bin/env bash
# DeepSeek-V4-Pro in fp4 on GB300 with SGLang under Dynamo: TP 4 prefill and decode workers.
# Page: https://github.com/SemiAnalysisAI/InferenceX (benchmarks/multi_node/srt-slurm-recipes/
#   sglang/deepseek-v4/1k1k/disagg-low-latency-1p1d-tp4-tp4-mtp.yaml at 1ceb1717)
# Flags: sglang 0.5.23, 0.5.18
# Drafts in the decode workers only, as on the page.
# With Dynamo's front end. Graphs and requests as on GB200: the page's are for concurrency 1 and 2.
# Thinking is what each request says, not a default of the server as on the page.
set -euo pipefail
source "$(dirname "$0")/../multi_node_lib.sh"

require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN

speculate mtp 3

engine_env=(
  PYTHONUNBUFFERED=1 SGLANG_JIT_DEEPGEMM_FAST_WARMUP=1 NCCL_MNNVL_ENABLE=1 NCCL_CUMEM_ENABLE=1
  SGLANG_MOONCAKE_CUSTOM_MEM_POOL=True MC_FORCE_MNNVL=1
  SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT=1 SGLANG_OPT_SWA_RELEASE_LEAF_LOCK_AFTER_WINDOW=1
  SGLANG_OPT_USE_JIT_NORM=1 SGLANG_OPT_USE_JIT_INDEXER_METADATA=1 SGLANG_OPT_USE_TOPK_V2=1
  SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT=100000 SGLANG_DISAGGREGATION_WAITING_TIMEOUT=100000
)
both=(
  --model-path /model/
  --served-model-name "$MODEL"
  --enable-metrics
  --disable-radix-cache
  --trust-remote-code
  --dyn-reasoning-parser deepseek_v4
  --disaggregation-transfer-backend mooncake
  --moe-runner-backend flashinfer_mxfp4 --disable-flashinfer-autotune
  --mem-fraction-static 0.90 --max-running-requests 1024 --cuda-graph-max-bs-decode 512
)
prefill=(
  "${both[@]}"
  --disaggregation-mode prefill --tp-size 4
  --chunked-prefill-size 4096
)
decode=(
  "${both[@]}"
  --disaggregation-mode decode --tp-size "$TP"
  --context-length "$MAX_MODEL_LEN"
  --swa-full-tokens-ratio 0.1
  "${speculation_args[@]}"
)

serve_disaggregated 1 4
run_benchmark_serving
run_eval
