"""One checkpoint in many ways: acceptance and speed over N, concurrency, prompt sets, engines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from utils import errors, records
from utils.acceptance import client, engines, preflight
from utils.acceptance.client import Pace
from utils.decode_eval import commands, lease, measuring, prompts, serving, sweep_table, weights
from utils.decode_eval.config import DecodeEvalConfig, PromptSource
from utils.decode_eval.converters import Draft
from utils.decode_eval.jobs import sampling
from utils.decode_eval.serving import Server
from utils.errors import HarnessError, UsageError
from utils.evals.prompt_files import PromptFile
from utils.models import near
from utils.records import Json

SCHEMA = "decode_eval_sweep"
FILE = "sweep.json"
BASELINE = 0  # as draft length: no speculation
FIGURES = (
    *("acceptance_length", "lower", "upper", "per_position", "completed"),
    *("output_tokens", "output_tokens_per_s", "reason", "error"),
)
# A row, and the text of every answer.
Measured = tuple[Json, list[str]]


@dataclass(frozen=True, eq=False)
class Cell:
    """What one server is measured with."""

    concurrency: int
    source: PromptSource
    prompts: PromptFile


@dataclass(frozen=True)
class Grid:
    """What is varied; draft_lengths without the baseline, which always runs first."""

    draft_lengths: tuple[int, ...]
    concurrencies: tuple[int, ...]
    sets: tuple[str, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Serve a checkpoint in every combination, and without speculation as the baseline.

    Each configuration is one engine: give several files for several engines. 3 when something was
    not measured.
    """
    args = _parser().parse_args(argv)
    configs = [
        replace(commands.read_config(path), output_dir=str(args.output.absolute()))
        for path in args.configs
    ]
    if any(config.base_url for config in configs):
        raise UsageError("base_url: a sweep starts its servers itself, one for each draft length")
    checkpoint = commands.checkpoint_folder(args.checkpoint)
    grid = Grid(
        tuple(args.draft_lengths),
        tuple(args.concurrency or (configs[0].concurrency,)),
        tuple(args.sets or (source.name for source in configs[0].sources)),
    )
    record = _begin(checkpoint, configs)
    print(sweep_table.HEAD, flush=True)
    for config in configs:
        for row in sweep(config, grid, checkpoint):
            record["rows"].append(row)
            record["finished"] = records.utc_now()
            records.write_json(args.output / FILE, record, SCHEMA)
            print(sweep_table.line(row), flush=True)
    print(f"record: {args.output / FILE}")
    measured = all(row["error"] is None for row in record["rows"])
    return errors.PASS if measured else errors.NOT_MEASURED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m utils.decode_eval sweep", description=main.__doc__
    )
    add = parser.add_argument
    add("configs", type=Path, nargs="+", metavar="CONFIG", help="YAML with a decode_eval block")
    add("--checkpoint", type=Path, required=True, help="folder with config.json and weights")
    add("--draft-lengths", type=_numbers, required=True, metavar="N,N…")
    add("--concurrency", type=_numbers, metavar="C,C…", help="default: the configuration's")
    add("--sets", type=lambda text: text.split(","), help="names of prompt sets (default: all)")
    add("--output", type=Path, required=True, help=f"folder for {FILE}, logs and prompts")
    return parser


def _numbers(text: str) -> list[int]:
    found = [int(word) for word in text.split(",")]
    if min(found) < 1 or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text}: want different whole numbers above 0")
    return found


def _begin(checkpoint: Path, configs: Sequence[DecodeEvalConfig]) -> Json:
    return {
        "schema": f"{SCHEMA}/1",
        "checkpoint": str(checkpoint),
        "sha256": weights.digest_of(weights.read(checkpoint)),
        "target_model": configs[0].target_model,
        "sampling": sampling(configs[0]),
        "rows": [],
        "started": records.utc_now(),
        "finished": None,
    }


def sweep(config: DecodeEvalConfig, grid: Grid, checkpoint: Path) -> Iterator[Json]:
    """One row for each draft length, concurrency and set; one server for each draft length.

    Raises:
        UsageError: no such set, prompts that can't be had, or a checkpoint that can't be served.
    """
    frozen = prompts.freeze(config)
    for name in grid.sets:
        if name not in frozen:
            raise UsageError(f"no prompt set {name!r}; {near(name, frozen)}")
    folder = config.folder / config.engine
    draft = serving.prepared(config, checkpoint, folder / "served")
    cells = [
        Cell(concurrency, source, frozen[source.name])
        for concurrency in grid.concurrencies
        for source in config.sources
        if source.name in grid.sets
    ]
    base: dict[Cell, Measured] = {}
    for n in (BASELINE, *grid.draft_lengths):
        one = replace(config, num_speculative_tokens=n)
        for cell, (row, texts) in _one_server(one, cells, draft if n else None, folder / f"n{n}"):
            base.setdefault(cell, (row, texts))  # the baseline's, which comes first
            yield _compared(row, texts, *base[cell])


def _one_server(
    config: DecodeEvalConfig, cells: Sequence[Cell], draft: Draft | None, folder: Path
) -> Iterator[tuple[Cell, Measured]]:
    """Every cell of one draft length; where the server fails, the rest with its error."""
    folder.mkdir(parents=True, exist_ok=True)
    boot_s = config.boot_timeout_s or config.timeout_s
    done = 0
    try:
        with (
            lease.devices(config.devices),
            serving.serve(config, draft, folder, boot_s) as server,
        ):
            for cell in cells:
                one = replace(config, concurrency=cell.concurrency)
                if draft:
                    yield cell, _drafted(one, cell, server, draft, folder)
                else:
                    yield cell, _plain(one, cell, server)
                done += 1
    except HarnessError as error:
        failed = {"reason": "server_failed", "error": str(error)}
        for cell in cells[done:]:
            yield cell, ({**_blank(config, cell), **failed}, [])


def _drafted(
    config: DecodeEvalConfig, cell: Cell, server: Server, draft: Draft, folder: Path
) -> Measured:
    """The same measurement and record as a worker's."""
    path = folder / f"al_{cell.source.name}_conc{cell.concurrency}.json"
    record, found = measuring.measure_set(
        config, cell.source, cell.prompts, server, draft, path=path, left_s=config.timeout_s
    )
    row = {
        **_blank(config, cell),
        **{name: found[name] for name in FIGURES},
        "engine_version": record["server"]["engine_version"],
        "record": str(path.relative_to(config.folder)),
    }
    return row, [answer["reasoning"] + answer["text"] for answer in record["raw"]["requests"]]


def _plain(config: DecodeEvalConfig, cell: Cell, server: Server) -> Measured:
    """The target alone: the same load, but there is no acceptance to measure."""
    engine, pace = engines.load(config.engine), Pace(cell.concurrency)
    load = measuring.load_of(config, cell.source, server, config.timeout_s)
    preflight.one_generation(load, engine)
    answers = client.run(load, cell.prompts.prompts, engine, pace)
    good = [answer for answer in answers if answer.ok]
    tokens = sum(answer.completion_tokens or 0 for answer in good)
    row = {**_blank(config, cell), "completed": len(good), "output_tokens": tokens}
    if len(good) < len(answers):
        bad = next(answer for answer in answers if not answer.ok)
        text = f"{len(answers) - len(good)} of {len(answers)} requests failed: {bad.error}"
        return {**row, "reason": "requests_failed", "error": text}, []
    row["output_tokens_per_s"] = tokens / pace.duration_s
    return row, [answer.said for answer in answers]


def _blank(config: DecodeEvalConfig, cell: Cell) -> Json:
    return {
        "engine": config.engine,
        "engine_version": None,
        "num_speculative_tokens": config.num_speculative_tokens,
        "concurrency": cell.concurrency,
        "prompt_set": cell.source.name,
        "prompts": len(cell.prompts.prompts),
        **dict.fromkeys(FIGURES),
        "completed": 0,
        "output_tokens": 0,
        "per_position": [],
        "speedup": None,
        "same_answers": None,
        "record": None,
    }


def _compared(row: Json, texts: Sequence[str], base: Json, own: Sequence[str]) -> Json:
    """With the speed-up over no speculation, and how many answers are those of the target alone."""
    if row["error"] or base["error"]:
        return row
    same = sum(one == other for one, other in zip(texts, own, strict=True))
    speedup = row["output_tokens_per_s"] / base["output_tokens_per_s"]
    return {**row, "speedup": speedup, "same_answers": same}
