"""AIPerf, the second client of the serving benchmark, in an environment of its own.

It pins 140 packages, transformers among them, that neither the harness nor an engine may share.
"""

from __future__ import annotations

import platform
from functools import partial

from utils.embedded_engine import environments, layout
from utils.embedded_engine.steps import Facts, Work, require_space

DISK_GB = 2


def fill(work: Work) -> Facts:
    environments.prepare_engine_folder(work)
    facts = {
        **work.step("environment", "installing AIPerf", partial(install, work)),
        **work.step("check", "checking that the aiperf command starts", partial(check, work)),
    }
    environments.mention_older(work)
    return facts


def install(work: Work) -> Facts:
    require_space(work.target, DISK_GB)
    environments.create_venv(work)
    environments.install_lock(work, layout.AIPERF_LOCK, *environments.WHEELS)
    return {"python": platform.python_version()}


def check(work: Work) -> Facts:
    work.run([str(work.target.venv / "bin" / "aiperf"), "--version"])
    return {"aiperf": environments.installed(work.target, "aiperf")}
