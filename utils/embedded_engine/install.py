"""`make setup`: the harness's environment and the embedded CPU engine's. Standard library only.

`--only sglang`, which `make test` adds, sets up the second engine: SGLang, for tests; `--only
aiperf` the second client of the serving benchmark. Several can be set up side by side.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType

from utils.embedded_engine import (
    aiperf_client,
    environments,
    layout,
    sglang_engine,
    vllm_engine,
)
from utils.embedded_engine.layout import Target
from utils.embedded_engine.steps import COMPLETE, Facts, Work, exclusive, is_done, mark
from utils.errors import UsageError, run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m utils.embedded_engine.install", description=__doc__
    )
    parser.add_argument(
        "--only",
        choices=("harness", "engine", "sglang", "aiperf"),
        help="set up one environment",
    )
    parser.add_argument(
        "--print-env",
        nargs="?",
        const="engine",
        choices=("engine", "sglang", "aiperf"),
        help="print where it is, install nothing",
    )
    arguments = parser.parse_args()
    if arguments.print_env:
        print(ENVIRONMENTS[arguments.print_env](os.environ))
        return 0
    signal.signal(signal.SIGTERM, stop)
    check_platform()
    for name in chosen(arguments.only, os.environ):
        set_up(
            *{
                "harness": (layout.harness(), fill_harness),
                "engine": (layout.engine(), vllm_engine.fill),
                "sglang": (layout.sglang(), sglang_engine.fill),
                "aiperf": (layout.aiperf(), aiperf_client.fill),
            }[name]
        )
    return 0


def stop(signum: int, _frame: FrameType | None) -> None:
    # Leaving by an exception ends the running child too.
    sys.exit(128 + signum)


def check_platform() -> None:
    machine = f"{platform.system()} {platform.machine()}"
    if machine not in ("Linux x86_64", "Linux aarch64"):
        raise UsageError(
            f"set-up runs on Linux, x86-64 or aarch64; this is {machine}: "
            "use such a machine or container"
        )


def chosen(only: str | None, environ: Mapping[str, str]) -> list[str]:
    if only:
        # SGLang serves the weights that the engine's set-up converts, perhaps meanwhile.
        return ["sglang", "engine"] if only == "sglang" else [only]
    if environ.get("ENGINE_PYTHON"):
        print(
            f"engine: yours, ENGINE_PYTHON={own_engine(environ)}; the embedded one is left out",
            flush=True,
        )
        return ["harness"]
    return ["harness", "engine"]


def own_engine(environ: Mapping[str, str]) -> str:
    python = environ["ENGINE_PYTHON"]
    if not os.access(python, os.X_OK):
        raise UsageError(
            f"ENGINE_PYTHON={python} is no program that can be run: name a python, or unset it"
        )
    return python


def engine_environment(environ: Mapping[str, str]) -> str:
    if environ.get("ENGINE_PYTHON"):
        model = environ.get("MODEL_PATH")
        return f"ENGINE_PYTHON={own_engine(environ)}" + (f"\nMODEL_PATH={model}" if model else "")
    target = layout.engine(environ)
    if not is_ready(target):
        raise UsageError(
            f"the embedded engine is not installed in {target.folder}: run `make setup`"
        )
    return f"ENGINE_PYTHON={target.python}\nMODEL_PATH={environ.get('MODEL_PATH') or target.model}"


def sglang_environment(environ: Mapping[str, str]) -> str:
    target, weights = layout.sglang(environ), layout.engine(environ)
    for wanted in (target, weights):
        if not is_ready(wanted):
            raise UsageError(
                f"{wanted.name} is not installed in {wanted.folder}: "
                "run `python3 -m utils.embedded_engine.install --only sglang`"
            )
    return f"ENGINE_PYTHON={target.python}\nMODEL_PATH={weights.model}"


def aiperf_environment(environ: Mapping[str, str]) -> str:
    target = layout.aiperf(environ)
    if not is_ready(target):
        raise UsageError(
            f"AIPerf is not installed in {target.folder}: "
            "run `python3 -m utils.embedded_engine.install --only aiperf`"
        )
    return f"AIPERF={target.venv / 'bin' / 'aiperf'}"


ENVIRONMENTS = {
    "engine": engine_environment,
    "sglang": sglang_environment,
    "aiperf": aiperf_environment,
}


def is_ready(target: Target) -> bool:
    # The interpreter that the environment links to may have been removed since.
    return is_done(target, COMPLETE) and target.python.exists()


def set_up(target: Target, fill: Callable[[Work], Facts]) -> None:
    try:
        if not is_ready(target):
            with exclusive(target) as work:
                # Another set-up may have ended while this one waited.
                if not is_ready(target):
                    mark(target, COMPLETE, fill(work))
    except OSError as error:
        raise UsageError(
            f"{target.name}: {error}: make {target.folder} writable, or set SPECGATE_HOME"
        ) from error
    print(f"{target.name}: ready in {target.folder}", flush=True)


def fill_harness(work: Work) -> Facts:
    environments.create_venv(work)
    work.say("installing its packages")
    # Three of lm-eval's dependencies come as source only; without isolation they are built by the
    # pinned setuptools instead of whatever the index has today.
    environments.install_lock(work, layout.HARNESS_LOCK, "--no-build-isolation")
    return {"python": platform.python_version()}


if __name__ == "__main__":
    sys.exit(run(main))
