"""Commands that measure or clear away: run, watch, doctor, reap."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from utils import errors, records
from utils.decode_eval import history, jobs, keeping, lease, preflight, snapshot
from utils.decode_eval.config import DecodeEvalConfig, resolve_decode_eval_config
from utils.decode_eval.contained import log
from utils.decode_eval.runner import DecodeEvalRunner
from utils.errors import HarnessError, NotMeasured, UsageError
from utils.records import Json

WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
_LAST_NUMBER = re.compile(r"(\d+)\D*$")


def _parser(name: str, text: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python3 -m utils.decode_eval {name}", description=text)
    parser.add_argument(
        "config", type=Path, help="YAML file with a decode_eval block, or the block"
    )
    return parser


def read_config(path: Path) -> DecodeEvalConfig:
    """The configuration of a YAML file; nothing trains here, so no device can be shared.

    Raises:
        UsageError: unreadable, wrong, or turned off.
    """
    data = records.parse_yaml(path)
    block = data.get("decode_eval", data) if isinstance(data, dict) else data
    if not isinstance(block, dict):
        raise UsageError(f"{path} holds no decode_eval block")
    config = resolve_decode_eval_config(block, training_devices=())
    if config is None:
        raise UsageError(f"{path}: decode_eval is off (every_steps: 0)")
    return config


def _speak() -> None:
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def run(argv: Sequence[str]) -> int:
    """One eval of a checkpoint, from a shell; without one, those that a training cut off."""
    parser = _parser("run", run.__doc__)
    parser.add_argument("--checkpoint", type=Path, help="folder with config.json and weights")
    parser.add_argument("--step", type=int, help="default: the last number in the folder's name")
    args = parser.parse_args(argv)
    _speak()
    config = dataclasses.replace(
        read_config(args.config), on_trainer_exit="kill", on_busy="queue_latest"
    )
    list(preflight.enforce(config))
    runner = DecodeEvalRunner(config)
    if args.checkpoint:
        path = checkpoint_folder(args.checkpoint)
        step = _step_of(args.checkpoint) if args.step is None else args.step
        runner.launch(step, lambda folder: snapshot.use_checkpoint(path, folder))
    elif not runner.busy:
        raise UsageError("no eval was cut off; name a --checkpoint")
    _wait(runner)
    rows = [row for row in runner.collect() if row["reason"] != keeping.ABANDONED]
    measured = rows and all(row["outcome"] == history.MEASURED for row in rows)
    return errors.PASS if measured else errors.NOT_MEASURED


def _wait(runner: DecodeEvalRunner) -> None:
    try:
        while not runner.wait(3600.0):
            pass
    except KeyboardInterrupt:
        runner.shutdown()
        raise


def _step_of(path: Path) -> int:
    found = _LAST_NUMBER.search(path.name)
    if not found:
        raise UsageError(f"{path.name!r} has no number to take as the step; say --step")
    return int(found[1])


def checkpoint_folder(path: Path) -> Path:
    """The folder with config.json and weights, in a checkpoint or just below it.

    Raises:
        UsageError: there is none.
    """
    for folder in (path, path / "model", path / "model" / "consolidated", path / "consolidated"):
        if (folder / "config.json").is_file() and any((folder / n).exists() for n in WEIGHT_FILES):
            return folder
    raise UsageError(f"{path} has no config.json beside {' or '.join(WEIGHT_FILES)}")


def watch(argv: Sequence[str]) -> int:
    """Measure each new checkpoint of a folder: for trainings without a hook.

    A checkpoint counts as whole when nothing in it has changed for --settle-s.
    """
    parser = _parser("watch", watch.__doc__)
    parser.add_argument("folder", type=Path, metavar="CHECKPOINT_DIR")
    parser.add_argument("--once", action="store_true", help="end when all that are there are done")
    parser.add_argument("--poll-s", type=float, default=5.0)
    parser.add_argument("--settle-s", type=float, default=10.0)
    args = parser.parse_args(argv)
    if not args.folder.is_dir():
        raise UsageError(f"{args.folder} is not a folder")
    _speak()
    config = dataclasses.replace(read_config(args.config), on_busy="queue_latest")
    list(preflight.enforce(config))
    runner = DecodeEvalRunner(config)
    try:
        while _watch_once(runner, args.folder, args.settle_s) or not args.once:
            time.sleep(args.poll_s)
    except KeyboardInterrupt:
        runner.shutdown()
        raise
    wanted = {step for step, _ in checkpoints(args.folder)}
    measured = {row["step"] for row in history.measured(history.read(runner.file))}
    return errors.PASS if wanted and wanted <= measured else errors.NOT_MEASURED


def _watch_once(runner: DecodeEvalRunner, folder: Path, settle_s: float) -> bool:
    """Launch the next checkpoint if none runs; whether there is more to do."""
    runner.collect()
    fresh = [(step, path) for step, path in checkpoints(folder) if not runner.knows(step)]
    ready = [(step, path) for step, path in fresh if _age_s(path) >= settle_s]
    if ready and not runner.busy:
        step, path = ready[0]
        runner.launch(step, lambda out: snapshot.use_checkpoint(path, out))
    return bool(fresh) or runner.busy


def checkpoints(folder: Path) -> Iterator[tuple[int, Path]]:
    """(step, folder of the weights) of everything below that looks like one, by step."""
    found = {}
    for path in folder.iterdir():
        if path.is_dir() and (number := _LAST_NUMBER.search(path.name)):
            try:
                found[int(number[1])] = checkpoint_folder(path)
            except UsageError:
                continue  # not one, or not yet
    yield from sorted(found.items())


def _age_s(path: Path) -> float:
    """Seconds since anything in a folder changed."""
    return time.time() - max(file.stat().st_mtime for file in path.iterdir())


def doctor(argv: Sequence[str]) -> int:
    """Check before training what can be checked: 0 when all is in order, 2 when not."""
    parser = _parser("doctor", doctor.__doc__)
    parser.add_argument("--draft", type=Path, help="an untrained snapshot, to see it converted")
    args = parser.parse_args(argv)
    config = read_config(args.config)
    checks = preflight.thorough()
    if args.draft:
        checks["draft"] = lambda config: preflight.convertible(config, args.draft)
    wrong = 0
    for name, check in checks.items():
        try:
            print(f"ok    {name}: {check(config)}")
        except HarnessError as error:
            wrong += 1
            print(f"wrong {name}: {error}")
    return errors.USAGE if wrong else errors.PASS


def reap(argv: Sequence[str]) -> int:
    """Clear away what died trainings left: a running eval with nobody to collect it, weights.

    Results that came in meanwhile go into the history. Processes are told apart by start time and
    boot, never by name.
    """
    parser = argparse.ArgumentParser(
        prog="python3 -m utils.decode_eval reap", description=reap.__doc__
    )
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--force", action="store_true", help="end an eval whose trainer lives, too")
    args = parser.parse_args(argv)
    if not args.output_dir.is_dir():
        raise UsageError(f"{args.output_dir} is not a folder")
    _speak()
    _end_running(args.output_dir, args.force)
    for step, folder in jobs.steps(args.output_dir):
        _reap_step(args.output_dir, step, folder)
    return errors.PASS


def _end_running(output: Path, force: bool) -> None:
    held = lease.read(output)
    if held is None:
        print("no eval runs")
        return
    job = jobs.read(jobs.folder(output, held.step))
    if job.trainer.alive() and not force:
        raise NotMeasured(
            f"step {held.step} is being measured for the training of pid {job.trainer.pid}, which "
            "lives; --force ends it all the same"
        )
    pids = held.holder.tree()
    held.holder.send(signal.SIGTERM)
    end = time.monotonic() + job.config.stop_grace_s + 3.0
    while held.holder.alive():
        if time.monotonic() > end:
            held.holder.kill_tree()
        time.sleep(0.05)
    print(f"ended the eval of step {held.step}: processes {' '.join(map(str, pids))}")


def _reap_step(output: Path, step: int, folder: Path) -> None:
    """Take in a result that nobody has seen, then remove the weights unless they are the best."""
    rows = history.read(output / history.FILE)
    row: Json | None = None
    with contextlib.suppress(NotMeasured):
        row = jobs.result(folder)
    if row and not any((r["step"], r["attempt"]) == (step, row["attempt"]) for r in rows):
        history.append(output / history.FILE, [row])
        rows.append(row)
        log.info("step %d: its result is in the history now: %s", step, row["outcome"])
    best = history.best(rows)
    if jobs.has_weights(folder) and (best is None or best["step"] != step):
        jobs.remove_weights(folder)
        print(f"removed the weights of step {step}")
