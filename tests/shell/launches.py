"""What the tests of launches on a real Slurm have in common."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.shell.conftest import TWIN
from tests.shell.launched import Launched
from tests.shell.slurm import Cluster

CLUSTER = "b300-nv"
EVALS = {"RUN_EVAL": "true", "EVAL_CONCURRENT_REQUESTS": "1 8"}
SLOW_EVAL: dict[str, Any] = {"lm_eval_run@8": {"until": "/never"}}
STUBBORN_EVAL: dict[str, Any] = {"lm_eval_run@8": {"linger_s": 120}}  # ignores TERM


def in_eval(launch: Launched, clients: Any = None, **options: Any) -> subprocess.Popen[bytes]:
    """A launch that hangs in its second eval point."""
    run = launch.start(CLUSTER, TWIN.stem, clients=clients or SLOW_EVAL, **EVALS, **options)
    launch.wait_until(lambda: launch.clients().count("lm_eval_run") == 2)
    return run


def job_of(launch: Launched) -> str:
    (file,) = launch.runs.glob("specgate-launch.*/job_id")
    return file.read_text().strip()


def nothing_left(launch: Launched, slurm: Cluster) -> None:
    """No process, no job, no run.env, which may hold a token."""
    assert launch.alive() == []
    names = slurm.ask("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%j").split()
    assert launch.job_name() not in names
    assert list(launch.runs.glob("specgate-launch.*")) == []
