"""One eval's folder, step_<N>: what is to be measured, what came of it, and the weights."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from utils import records
from utils.decode_eval import history
from utils.decode_eval.config import DecodeEvalConfig
from utils.decode_eval.contained import log
from utils.decode_eval.lease import Process
from utils.decode_eval.snapshot import Snapshot
from utils.errors import NotMeasured
from utils.records import Json

SCHEMA = "decode_eval_job"
JOB, RESULT, LOG, ENGINE_LOG = "decode_eval_config.json", "result.json", "worker.log", "engine.log"
MODEL, SERVED = "model", "served"
TAIL_LINES = 20
_STEP = re.compile(r"step_(\d+)")


@dataclass(frozen=True)
class Job:
    """What a worker is told. attempt: which start of training it belongs to, from 1."""

    step: int
    attempt: int
    config: DecodeEvalConfig
    snapshot: Snapshot
    tau_sim: float | None
    trainer: Process
    created: str

    @classmethod
    def new(
        cls,
        config: DecodeEvalConfig,
        step: int,
        attempt: int,
        snapshot: Snapshot,
        tau_sim: float | None,
    ) -> Job:
        """A job of this process; a simulated length that isn't finite is none."""
        simulated = None if tau_sim is None else float(tau_sim)
        if simulated is not None and not math.isfinite(simulated):
            log.warning("decode_eval: step %d: tau_sim %s is left out", step, simulated)
            simulated = None
        me = Process.of(os.getpid())
        return cls(step, attempt, config, snapshot, simulated, me, records.utc_now())

    @property
    def folder(self) -> Path:
        return folder(self.config.folder, self.step)

    def write(self) -> None:
        old = self.folder / RESULT
        old.unlink(missing_ok=True)
        data = {
            "schema": f"{SCHEMA}/1",
            "step": self.step,
            "attempt": self.attempt,
            "config": self.config.as_json(),
            "snapshot": {**asdict(self.snapshot), "folder": str(self.snapshot.folder)},
            "tau_sim": self.tau_sim,
            "trainer": asdict(self.trainer),
            "created": self.created,
        }
        records.write_json(self.folder / JOB, data, SCHEMA)


def read(step_folder: Path) -> Job:
    """The job of a step.

    Raises:
        NotMeasured: there is none, or it is broken.
    """
    data = records.read_json(step_folder / JOB)
    if problem := records.schema_problem(data, SCHEMA):
        raise NotMeasured(f"{step_folder / JOB}: {problem}")
    return Job(
        data["step"],
        data["attempt"],
        DecodeEvalConfig.from_json(data["config"]),
        Snapshot(**{**data["snapshot"], "folder": Path(data["snapshot"]["folder"])}),
        data["tau_sim"],
        Process(**data["trainer"]),
        data["created"],
    )


def folder(output: Path, step: int) -> Path:
    return output / f"step_{step}"


def steps(output: Path) -> Iterator[tuple[int, Path]]:
    """Every step folder, by step."""
    found = ((_STEP.fullmatch(path.name), path) for path in output.glob("step_*"))
    yield from sorted((int(match[1]), path) for match, path in found if match)


def result(step_folder: Path) -> Json:
    """What a worker left.

    Raises:
        NotMeasured: nothing, something broken, or the result of another step.
    """
    path = step_folder / RESULT
    row = history.checked(records.read_json(path), str(path))
    if step_folder.name != f"step_{row['step']}":
        raise NotMeasured(f"{path} is of step {row['step']}", "other_result")
    return row


def blank(config: DecodeEvalConfig, step: int, attempt: int) -> Json:
    """A result before anything was seen; without more it is a failure."""
    return {
        "schema": f"{history.SCHEMA}/1",
        "step": step,
        "attempt": attempt,
        "outcome": "failed",
        "reason": None,
        "error": None,
        "log_tail": [],
        **dict.fromkeys(history.FIGURES),
        "tau_sim": None,
        "sets": [],
        "snapshot": None,
        "engine": None,
        "target_model": config.target_model,
        "num_speculative_tokens": config.num_speculative_tokens,
        "sampling": sampling(config),
        "seconds": dict.fromkeys(("convert", "boot", "decode", "total")),
        "started": records.utc_now(),
        "finished": records.utc_now(),
    }


def of_job(job: Job) -> Json:
    """A result of a job before anything was seen; the worker adds the digest."""
    snap = job.snapshot
    return {
        **blank(job.config, job.step, job.attempt),
        "tau_sim": job.tau_sim,
        "snapshot": {
            "folder": str(snap.folder),
            "sha256": None,
            "size_bytes": snap.size_bytes,
            "export_s": snap.export_s,
        },
    }


def sampling(config: DecodeEvalConfig) -> dict[str, float]:
    """Every sampling field that is sent."""
    return {"temperature": config.temperature, "top_p": config.top_p, **config.sampling}


def log_tail(step_folder: Path) -> list[str]:
    """The end of the engine's log and of the worker's, whatever is there."""
    lines: list[str] = []
    for name in (ENGINE_LOG, LOG):
        path = step_folder / name
        if path.exists():
            text = path.read_bytes()[-20_000:].decode(errors="replace")
            lines += [f"{name}: {line}" for line in text.splitlines() if line.strip()][-TAIL_LINES:]
    return lines


def remove_weights(step_folder: Path) -> None:
    """The snapshot, and what was made of it for the engine."""
    shutil.rmtree(step_folder / MODEL, ignore_errors=True)
    remove_served(step_folder)


def remove_served(step_folder: Path) -> None:
    shutil.rmtree(step_folder / SERVED, ignore_errors=True)


def has_weights(step_folder: Path) -> bool:
    return (step_folder / MODEL).exists()
