"""The second engine, for tests alone: SGLang's own code on a CPU, over kernels in plain torch.

SGLang's CPU engine wants a build of its kernel package that PyPI doesn't carry; `sgl_kernel/`
beside this file stands in for it. So the API, the scheduler, the speculative workers and
/metrics are the real ones, and speed says nothing (13 to 24 tokens/s on 2 cores). It serves the
weights of the vLLM engine.
"""

from __future__ import annotations

import os
import platform
import shutil
from functools import partial

from utils.embedded_engine import cpu_torch, environments, layout
from utils.embedded_engine.steps import Facts, Work, require_space
from utils.errors import UsageError

DISK_GB = 4
CACHE = "cache"  # of what is compiled, in the engine's own folder

# torchvision's wheel is built for CUDA; beside a CPU torch its operators don't load, and it fails
# when it describes two of them, unless they are declared.
TORCHVISION_FIX = """

if not _has_ops():
    for _name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
"""
# The server with all it imports; and the n-gram drafter, which is compiled at its first use.
CHECK = """
import sglang.srt.entrypoints.http_server
from sglang.kernels.ops.speculative.ngram_corpus import get_ngram_corpus_cls
get_ngram_corpus_cls()
"""


def fill(work: Work) -> Facts:
    environments.prepare_engine_folder(work)
    if not shutil.which("g++"):
        raise UsageError("sglang: its n-gram drafter is compiled here: install g++")
    facts = {
        **work.step("environment", "installing SGLang (about 3 GB)", partial(install, work)),
        **work.step("check", "checking that the server can start", partial(check, work)),
    }
    environments.mention_older(work)
    return facts


def install(work: Work) -> Facts:
    require_space(work.target, DISK_GB)
    environments.create_venv(work)
    torch_from = cpu_torch.install(work)
    environments.install_lock(work, layout.SGLANG_LOCK, *environments.WHEELS)
    packages = environments.site_packages(work.target)
    with (packages / "torchvision" / "extension.py").open("a", encoding="utf-8") as file:
        file.write(TORCHVISION_FIX)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(layout.SGLANG_KERNELS, packages / "sgl_kernel", ignore=ignore)
    return {"python": platform.python_version(), "torch_from": torch_from}


def check(work: Work) -> Facts:
    path = f"{work.target.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    variables = [
        "SGLANG_USE_CPU_ENGINE=1",
        f"SGLANG_CACHE_DIR={work.target.folder / CACHE}",
        f"PATH={path}",  # ninja is in the environment
    ]
    work.run(["/usr/bin/env", *variables, str(work.target.python), "-I", "-c", CHECK])
    return {
        "torch": environments.installed(work.target, "torch"),
        "sglang": environments.installed(work.target, "sglang"),
    }
