"""Wait for the end of a Slurm job that somebody else submits under a name of ours."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from utils import errors, records
from utils.errors import NotMeasured
from utils.runners.facility import Slurm, Unanswered

POLL_S = 2.0
MOST_MISSES = 30  # in a row: a controller that restarts is back by then


def wait(job: Slurm, poll_s: float = POLL_S) -> None:
    """Returns when the job is listed no more; its id is left in the run's folder.

    Raises:
        NotMeasured: Slurm doesn't answer any more.
    """
    misses = 0
    while True:
        try:
            listed = job.left().split()
            misses = 0
        except Unanswered as error:
            misses += 1
            print(f"waiting for job {job.name}: {error}", file=sys.stderr, flush=True)
            if misses >= MOST_MISSES:
                raise NotMeasured(f"Slurm has not answered {misses} times in a row") from error
            listed = ["?"]
        if not listed:
            return
        if len(listed) > 1:  # job <id> <state>
            records.write_text(job.run_dir / "job_id", f"{listed[1]}\n")
        time.sleep(poll_s)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="utils.runners.wait_job", description=__doc__)
    parser.add_argument("--name", required=True, help="the job's, nobody else's")
    parser.add_argument("--run-dir", type=Path, required=True)
    args = parser.parse_args(argv)
    wait(Slurm(args.name, args.run_dir))
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
