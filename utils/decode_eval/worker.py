#!/usr/bin/env python3
"""The worker: one eval in a process of its own, from the snapshot to result.json.

It is started below a supervisor, which clears away whatever is left when it ends, however it ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by path: the repository root stands in for our own folder
    sys.path[0] = str(Path(__file__).parents[2])

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from utils import errors, records
from utils.decode_eval import history, jobs, lease, measuring, prompts, serving, weights
from utils.decode_eval.config import PromptSource
from utils.decode_eval.converters import Draft
from utils.decode_eval.jobs import Job
from utils.decode_eval.lease import Process
from utils.decode_eval.serving import Server
from utils.errors import HarnessError, NotMeasured, UsageError
from utils.evals.prompt_files import PromptFile
from utils.records import Json

POLL_S = 0.25
LOAD_MARGIN_S = 5.0  # the watch ends an eval that takes too long, and says so; not its load
ORPHANED = 143  # as if the trainer's own signal had reached us


class Worker:
    """One job on its way; phase: what it is at, for whoever asks why it ended."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.began = time.monotonic()
        self.phase = "start"
        self.holder = Process.of(os.getppid())
        self.row = jobs.of_job(job)
        self.loads_s: list[float] = []
        self._published = threading.Lock()

    @property
    def left_s(self) -> float:
        return self.began + self.job.config.timeout_s - time.monotonic()

    def run(self) -> int:
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            self._measure()
        except HarnessError as error:
            return self._fail(self._reason(error), str(error))
        except OSError as error:  # such as a disk that is full
            return self._fail("measurement_failed", f"at phase {self.phase}: {error}")
        broken = [one for one in self.row["sets"] if one["error"]]
        if broken:
            name, why = broken[0]["name"], broken[0]["error"]
            return self._fail(broken[0]["reason"], f"prompt set {name}: {why}")
        self._publish(outcome=history.MEASURED, **measuring.pooled(self.row["sets"]))
        return errors.PASS

    def _measure(self) -> None:
        config, folder, draft = self.job.config, self.job.folder, None
        lease.acquire(config.folder, self.job.step, self.holder, config.timeout_s)
        frozen = [prompts.read(prompts.path_of(config, one.name)) for one in config.sources]
        with lease.devices(config.devices):
            self._enter("convert")
            snap = self.job.snapshot
            snap.require_unchanged()
            self.row["snapshot"]["sha256"] = weights.digest_of(weights.read(snap.folder))
            if not config.base_url:
                draft = serving.prepared(config, snap.folder, folder / jobs.SERVED)
            self.row["seconds"]["convert"] = time.monotonic() - self.began
            self._enter("boot")
            boot_s = min(config.boot_timeout_s or self.left_s, self.left_s)
            with serving.serve(config, draft, folder, boot_s) as server:
                self.row["seconds"]["boot"] = server.boot_s
                self._enter("decode")
                snap.require_unchanged()  # what the engine has loaded is what was hashed
                for source, prompt_file in zip(config.sources, frozen, strict=True):
                    self._one_set(server, draft, source, prompt_file)
        jobs.remove_served(folder)

    def _one_set(
        self, server: Server, draft: Draft | None, source: PromptSource, frozen: PromptFile
    ) -> None:
        name = source.name
        record, found = measuring.measure_set(
            self.job.config,
            source,
            frozen,
            server,
            draft,
            path=self.job.folder / f"al_{name}.json",
            left_s=max(self.left_s, 0.0) + LOAD_MARGIN_S,
        )
        self.row["sets"].append(found)
        self.row["engine"] = {
            "name": self.job.config.engine,
            "version": record["server"]["engine_version"],
            "method": record["speculation"]["method"],
        }
        if load := record["raw"].get("client"):
            self.loads_s.append(load["duration_s"])
            self.row["seconds"]["decode"] = sum(self.loads_s)
        if record["error"] and (status := server.ended()) is not None:
            raise NotMeasured(
                f"the engine ended with status {status} during prompt set {name}: "
                f"{record['error']}",
                "engine_died",
            )

    def _enter(self, phase: str) -> None:
        self.phase = phase
        lease.enter(self.job.config.folder, self.holder, phase)
        print(f"{time.monotonic() - self.began:8.1f} s  {phase}", flush=True)

    def _reason(self, error: HarnessError) -> str:
        if isinstance(error, UsageError):
            return "unusable_configuration"
        if self.phase == "boot":
            return "engine_not_ready"
        return getattr(error, "reason", "measurement_failed")

    def _fail(self, reason: str, text: str) -> int:
        print(f"not measured, {reason}: {text}", flush=True)
        tail = jobs.log_tail(self.job.folder)
        self._publish(reason=reason, error=text, log_tail=tail)
        return errors.NOT_MEASURED

    def _publish(self, **found: Any) -> None:
        """Write the result; of main thread and watch only the first one does."""
        if not self._published.acquire(blocking=False):
            return
        row: Json = {**self.row, **found, "finished": records.utc_now()}
        row["seconds"] = {**row["seconds"], "total": time.monotonic() - self.began}
        records.write_json(self.job.folder / jobs.RESULT, row, history.SCHEMA)

    def _watch(self) -> None:
        """End it all when the deadline has passed, or the trainer is gone and that is the policy.

        Ending at once is safe: the supervisor clears the engine away.
        """
        config = self.job.config
        while self.left_s > 0:
            if config.on_trainer_exit == "kill" and not self.job.trainer.alive():
                print("the trainer has ended: stopping", flush=True)
                os._exit(ORPHANED)
            time.sleep(POLL_S)
        limit = f"not finished within timeout_s {config.timeout_s:g} s"
        try:
            self._fail("timed_out", f"{limit}, at phase {self.phase}")
        finally:
            os._exit(errors.NOT_MEASURED)


def main(argv: Sequence[str] | None = None) -> int:
    (folder,) = sys.argv[1:] if argv is None else argv
    return Worker(jobs.read(Path(folder))).run()


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
