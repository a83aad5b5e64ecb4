"""What outlives a start of training: unfinished evals, weights, the best one; and what is said."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from utils.decode_eval import history, jobs, lease
from utils.decode_eval.config import DecodeEvalConfig
from utils.decode_eval.contained import log
from utils.decode_eval.jobs import Job
from utils.decode_eval.running import Running
from utils.errors import NotMeasured
from utils.records import Json

BEST = "best"
CUT_OFF, ABANDONED = "cut_off", "abandoned"


@dataclass
class Recovered:
    """What an output_dir holds at the start of training.

    attempt: number of this start. running: an eval that still runs. news: results that nobody has
    seen yet. again: evals that ended without a result and whose weights are there, to be repeated.
    """

    attempt: int
    running: Running | None = None
    news: list[Json] = field(default_factory=list)
    again: list[Job] = field(default_factory=list)


def recover(config: DecodeEvalConfig, rows: Sequence[Json]) -> Recovered:
    """Read the state from the store: nothing is measured twice, and nothing is lost."""
    seen = {(row["step"], row["attempt"]): row["reason"] or row["outcome"] for row in rows}
    held = _held(config)
    cut: list[Job] = []
    found = Recovered(attempt=1 + max((row["attempt"] for row in rows), default=0))
    for step, folder in jobs.steps(config.folder):
        try:
            job = jobs.read(folder)
        except NotMeasured:
            jobs.remove_weights(folder)  # an export that was cut short
            continue
        found.attempt = max(found.attempt, job.attempt + 1)
        known = seen.get((step, job.attempt))
        if held and held.job.step == step:
            found.running = held
        elif known == CUT_OFF or (known is None and not (folder / jobs.RESULT).exists()):
            cut += [job] if job.snapshot.folder.exists() else []
            found.news += [] if known else [_abandoned(job)]
        elif known is None:
            found.news.append(_arrived(job))
    me = lease.Process.of(os.getpid())
    found.again = [
        dataclasses.replace(job, attempt=found.attempt, config=config, trainer=me) for job in cut
    ]
    for job in found.again:
        job.write()
    return found


def _held(config: DecodeEvalConfig) -> Running | None:
    """An eval that still runs; one that was to end with its training, which is dead, ends now."""
    held = lease.read(config.folder)
    if held is None:
        return None
    running = Running.adopt(held, jobs.read(jobs.folder(config.folder, held.step)))
    if running.job.config.on_trainer_exit == "kill" and not running.job.trainer.alive():
        running.stop()
        return None
    return running


def _abandoned(job: Job) -> Json:
    there = job.snapshot.folder.exists()
    end = "it is repeated now" if there else "its weights are gone"
    text = f"the eval ended with training, without a result; {end}"
    return {**jobs.of_job(job), "reason": ABANDONED, "error": text}


def _arrived(job: Job) -> Json:
    try:
        return jobs.result(job.folder)
    except NotMeasured as error:
        return {**jobs.of_job(job), "reason": "unreadable_result", "error": str(error)}


def tidy(config: DecodeEvalConfig, rows: Sequence[Json], step: int) -> None:
    """Point at the best snapshot, and remove weights that are measured and not to be kept."""
    best = history.best(rows)
    if best:
        _point(config, best["step"])
    if config.keep_weights == "all":
        return
    for done in {step, *(row["step"] for row in rows if row["outcome"] == history.MEASURED)}:
        is_best = best is not None and best["step"] == done
        if not (is_best and config.keep_weights == "best"):
            jobs.remove_weights(jobs.folder(config.folder, done))


def _point(config: DecodeEvalConfig, step: int) -> None:
    """output_dir/best → step_<N>, replaced in one go."""
    link, fresh = config.folder / BEST, config.folder / f".{BEST}.new"
    if link.is_symlink() and os.readlink(link) == f"step_{step}":
        return
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(f"step_{step}")
    os.replace(fresh, link)


def say(config: DecodeEvalConfig, row: Json) -> None:
    """One line for one result, and an alarm when simulated and real length part."""
    step = row["step"]
    if row["outcome"] != history.MEASURED:
        where = jobs.folder(config.folder, step) / jobs.LOG
        text = "decode_eval: step %d is not measured, %s: %s; log: %s"
        log.error(text, step, row["reason"], row["error"], where)
        return
    log.info("decode_eval: step %d: %s", step, summary(row))
    al, simulated = row["acceptance_length"], row["tau_sim"]
    if simulated is not None and simulated - al >= config.alarm_gap:
        log.warning(
            "decode_eval: ALARM: step %d has tau_sim %.2f and tau_real %.2f: what training sees is "
            "not what is served; look at the export, the converted config.json (positions, rope, "
            "hidden-state layers) and the chat template",
            *(step, simulated, al),
        )


def summary(row: Json) -> str:
    """The figures of a measured result, for people."""
    interval = ""
    if row["lower"] is not None:
        interval = f" ({row['lower']:.3f}..{row['upper']:.3f})"
    sets = ", ".join(f"{one['name']} {one['acceptance_length']:.3f}" for one in row["sets"])
    several = f" [{sets}]" if len(row["sets"]) > 1 else ""
    asked = sum(one["prompts"] for one in row["sets"])
    done = sum(one["completed"] for one in row["sets"])
    spent = row["seconds"]
    return (
        f"tau_real {row['acceptance_length']:.4f}{interval}{several}, "
        f"N={row['num_speculative_tokens']}, {done} of {asked} prompts, "
        f"boot {spent['boot']:.1f} s, decode {spent['decode']:.1f} s"
    )


def sum_up(config: DecodeEvalConfig, file: Path, attempt: int) -> None:
    """One line on this start of training, and whether evals could keep up with the cadence."""
    rows = [row for row in history.read(file) if row["attempt"] == attempt]
    done = history.measured(rows)
    counts = Counter(row["reason"] or row["outcome"] for row in rows)
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    log.info("decode_eval: this start: %s; all of them: %s", said or "no eval", file)
    missed = counts["busy"] + counts["superseded"]
    if missed and len(done) > 1:
        apart = (done[-1]["step"] - done[0]["step"]) / (len(done) - 1)
        log.warning(
            "decode_eval: evals take longer than every_steps %d: %d boundaries were passed over, "
            "the points are %.0f steps apart on average",
            *(config.every_steps, missed, apart),
        )
