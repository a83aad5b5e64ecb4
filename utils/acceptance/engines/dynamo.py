"""NVIDIA Dynamo over vLLM, SGLang or TensorRT-LLM: the engines' own series, at each decode worker.

Turn on: DYN_SYSTEM_PORT for every worker; SGLang needs --enable-metrics, TensorRT-LLM
--publish-events-and-metrics. Read: one --metrics-url for each decode worker's own system port
(`http://worker:8081/metrics`). The front end's page holds `dynamo_*` only and would read as zeros.

The series are the engine's, with labels more (dynamo_component, worker_id …) and in either
spelling of the prefix (`sglang_` in 0.8, `trtllm:` before it). A page may show a series twice;
equal ones count once. Prefill workers take no part in speculation: their series are left out.
Can't be known: requests' own figures (the front end strips them), versions and arguments of the
workers, and for TensorRT-LLM the iteration statistics.
"""

from __future__ import annotations

from dataclasses import replace

from utils.acceptance.engines import Engine, Source, sglang, trt, vllm
from utils.acceptance.exposition import Samples, reader
from utils.errors import NotMeasured

HOW = (
    "set DYN_SYSTEM_PORT for every worker and name each decode worker's own endpoint with "
    "--metrics-url http://WORKER:PORT/metrics"
)
SPELLINGS = {**vllm.SPELLINGS, **sglang.SPELLINGS, **trt.SPELLINGS}
_MORE = {
    "vllm": "",
    "sglang": "; start SGLang with --enable-metrics",
    "trt": "; start TensorRT-LLM with --publish-events-and-metrics",
}
_read = reader(SPELLINGS)


def read(text: str, endpoint: str, content_type: str, before: Samples) -> Samples:
    """A worker's page without the series of prefill workers.

    Raises:
        NotMeasured: a front end's page, or a prefill worker's.
    """
    page = _read(text, endpoint, content_type, before)
    if page and all(_front_end(series.name) for series in page):
        raise NotMeasured(
            f"{endpoint} is Dynamo's front end, it has no series of an engine: {HOW}", "front_end"
        )
    kept = {s: v for s, v in page.items() if "prefill" not in (s.label("dynamo_component") or "")}
    if not any(series.name.startswith(tuple(SPELLINGS.values())) for series in kept):
        raise NotMeasured(f"{endpoint} shows no series of a decode worker: {HOW}", "no_decoder")
    return kept


def _front_end(name: str) -> bool:
    return name.startswith(("dynamo_", "python_", "process_"))


def _over(engine: Engine, source: Source, name: str) -> Engine:
    """The same counters through Dynamo; its front end hides all else."""
    return Engine(
        name=f"dynamo-{name}",
        aliases=tuple(f"dynamo-{alias}" for alias in engine.aliases),
        how_to_enable=HOW + _MORE[name],
        sources=(replace(source, read=read, path="/metrics"),),
        speculation=engine.speculation,
        reported=engine.reported,
    )


ENGINES = (
    _over(vllm.ENGINE, vllm.COUNTERS, "vllm"),
    _over(sglang.ENGINE, sglang.COUNTERS, "sglang"),
    _over(trt.ENGINE, trt.COUNTERS, "trt"),
)
