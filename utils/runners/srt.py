"""A disaggregated recipe as a job of srt-slurm, which starts Dynamo's parts on the nodes.

https://github.com/NVIDIA/srt-slurm, recipe format as of c88ef731. What the recipe says are the
engine's options per role; resources follow from the topology; the rest is the launcher's.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils import errors, records
from utils.errors import UsageError
from utils.recipes import settings, spelling
from utils.recipes.settings import Settings
from utils.serving.launch import Command, read_command

PROBE_S = 10  # between two looks at a worker that loads


@dataclass(frozen=True)
class Launch:
    """What the launcher adds: job name, image file, the step's command, mounts, the cluster."""

    name: str
    partition: str
    account: str
    image: str
    step: str
    mounts: Sequence[str]
    gpus_per_node: int
    time_limit_min: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Launch:
        """From LAUNCH_… as submit_srt.sh sets them."""
        return cls(
            name=environment["LAUNCH_NAME"],
            partition=environment["LAUNCH_PARTITION"],
            account=environment["LAUNCH_ACCOUNT"],
            image=environment["LAUNCH_IMAGE"],
            step=environment["LAUNCH_STEP"],
            mounts=environment["LAUNCH_MOUNTS"].split(","),
            gpus_per_node=int(environment["LAUNCH_GPUS_PER_NODE"]),
            time_limit_min=int(environment["LAUNCH_TIME_LIMIT_MIN"]),
        )


@dataclass(frozen=True)
class Role:
    """Workers of one kind; gpus is of each, command is the environment and options of one."""

    workers: int
    gpus: int
    command: Command


def options(argv: Sequence[str]) -> dict[str, str | bool]:
    """--name value … → name: value; true for an option without a value.

    Raises:
        UsageError: a word that belongs to no option, or an option with several values.
    """
    found: dict[str, str | bool] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name = word.removeprefix("--")
            if name in found:
                raise UsageError(f"--{name} is given twice")
            found[name] = True
        elif found.get(name) is not True:
            raise UsageError(f"{word!r} belongs to no option, or to one that has a value already")
        else:
            found[name] = word
    return found


def job(asked: Settings, launch: Launch, roles: Mapping[str, Role]) -> dict[str, Any]:
    """The job, as srt-slurm reads it.

    Raises:
        UsageError: a worker's GPUs don't fill whole nodes.
    """
    family = asked.name.engine_family
    resources: dict[str, Any] = {"gpu_type": asked.name.hw, "gpus_per_node": launch.gpus_per_node}
    backend: dict[str, Any] = {"type": family, f"{family}_config": {}}
    if family == "vllm":
        backend["connector"] = None  # the recipe says how caches are handed over
    for name, role in roles.items():
        total = role.workers * role.gpus
        if total % launch.gpus_per_node:
            raise UsageError(
                f"{role.workers} {name} workers of {role.gpus} GPUs don't fill nodes of"
                f" {launch.gpus_per_node}"
            )
        resources[f"{name}_nodes"] = total // launch.gpus_per_node
        resources[f"{name}_workers"] = role.workers
        resources[f"gpus_per_{name}"] = role.gpus
        backend[f"{name}_environment"] = dict(role.command.env)
        backend[f"{family}_config"][name] = options(role.command.argv)
    return {
        "name": launch.name,
        "model": {
            "path": asked["MODEL_PATH"],
            "container": launch.image,
            "precision": asked.name.precision,
        },
        "dynamo": {"install": False},  # the image has it
        "slurm": {
            "time_limit": f"{launch.time_limit_min // 60}:{launch.time_limit_min % 60:02}:00"
        },
        "sbatch_directives": {"mem": "0"},
        "health_check": {
            "max_attempts": -(-asked["SERVER_READY_TIMEOUT_S"] // PROBE_S),
            "interval_seconds": PROBE_S,
        },
        "resources": resources,
        "infra": {"etcd_nats_dedicated_node": True},
        "frontend": {"type": "dynamo", "enable_multiple_frontends": False},
        "backend": backend,
        "benchmark": {"type": "custom", "command": launch.step},
        "container_mounts": dict(_mount(text) for text in launch.mounts),
    }


def cluster(asked: Settings, launch: Launch, root: str | None) -> dict[str, Any]:
    """srtslurm.yaml, which srtctl looks for where it is called; root: srt-slurm's checkout."""
    found = {
        "default_account": launch.account,
        "default_partition": launch.partition,
        "gpus_per_node": launch.gpus_per_node,
        "use_exclusive_sbatch_directive": True,
        "output_dir": f"{asked['RESULT_DIR']}/srt-slurm",
    }
    return found | ({"srtctl_root": root} if root else {})


def _mount(text: str) -> tuple[str, str]:
    source, target = text.split(":")[:2]
    return source, target


def main(argv: Sequence[str] | None = None) -> int:
    """Write the job: `… -- NAME=value… --option…` for prefill, then for decode."""
    parser = argparse.ArgumentParser(prog="utils.runners.srt", description=main.__doc__)
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--prefill-workers", type=int, required=True)
    parser.add_argument("--prefill-gpus", type=int, required=True, help="of each worker")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    words = args.words[1:]
    cut = words.index("--")
    asked = settings.load(args.recipe, os.environ)
    sides = (read_command(side) for side in (words[:cut], words[cut + 1 :]))
    prefill, decode = (Command(c.env, spelling.spell_for(c.argv, asked.exports())) for c in sides)
    roles = {
        "prefill": Role(args.prefill_workers, args.prefill_gpus, prefill),
        "decode": Role(asked["DP_SIZE"], asked["TP"], decode),
    }
    launch = Launch.of(os.environ)
    written = job(asked, launch, roles)
    _write(args.output, written)
    _write(Path(asked["RESULT_DIR"]) / "srt_job.yaml", written)
    root = os.environ.get("SRTCTL_ROOT")
    _write(args.output.with_name("srtslurm.yaml"), cluster(asked, launch, root))
    return errors.PASS


def _write(path: Path, data: Mapping[str, Any]) -> None:
    import yaml

    records.write_text(path, yaml.safe_dump(data, sort_keys=False, width=100))


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
