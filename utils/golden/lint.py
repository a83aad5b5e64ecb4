"""What a person should look at in golden files; what breaks a rule was refused on reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from utils import errors, models, records
from utils.golden import registry
from utils.golden.registry import Golden
from utils.records import Json

DIP = 0.02
MIN_RUNS = 2


def run(folder: Path, goldens: Sequence[Golden]) -> int:
    """Print warnings about a folder's goldens."""
    files = registry.golden_files(folder)
    found = warnings(files, goldens)
    for warning in found:
        print(f"warning: {warning}")
    print(f"{len(files)} golden files, {len(goldens)} values, {len(found)} warnings")
    return errors.PASS


def warnings(files: Sequence[Path], goldens: Sequence[Golden]) -> list[str]:
    """Of some files and what was read from them."""
    return [*_misnamed(goldens), *_dips(goldens), *_unsaid(files), *_other_sampling(goldens)]


def curves(goldens: Sequence[Golden]) -> Iterator[list[Golden]]:
    """Goldens that differ in N alone, N rising."""
    ordered = sorted(goldens, key=lambda golden: (golden.curve, golden.n))
    for _, group in groupby(ordered, key=lambda golden: golden.curve):
        yield list(group)


def _misnamed(goldens: Sequence[Golden]) -> Iterator[str]:
    for file, prefix in sorted({(golden.file, golden.prefix) for golden in goldens}):
        if not file.startswith(f"{prefix}_"):
            yield f"{file}: call it {prefix}_<method>.yaml, that is how people look for it"


def _dips(goldens: Sequence[Golden]) -> Iterator[str]:
    """With one drafter, a longer draft can't lower the AL; a dip shows how far runs differ."""
    for curve in curves(goldens):
        for shorter, longer in pairwise(curve):
            fall = 1 - longer.acceptance_length / shorter.acceptance_length
            if fall > DIP:
                yield f"{longer}: {fall:.1%} below N={shorter.n}"


def _unsaid(files: Sequence[Path]) -> Iterator[str]:
    """Whatever a measured golden could say and doesn't; an imported one can't say more."""
    for path in files:
        data = records.read_yaml(path, "golden")
        if data["imported"]:
            continue
        missing = [name for name in ("model_revision", "draft_model") if data[name] is None]
        if missing:
            yield f"{path.name}: does not say {' and '.join(missing)}"
        for entry in data["entries"]:
            where = f"{path.name} {entry['thinking']} N={entry['num_speculative_tokens']}"
            yield from (f"{where}: {text}" for text in _thin(entry))


def _thin(entry: Json) -> Iterator[str]:
    workload, runs = entry["workload"], entry["runs"]
    if unsaid := [name for name, value in workload.items() if value is None]:
        yield f"its workload does not say {', '.join(unsaid)}"
    if len(runs) < MIN_RUNS:
        yield "one run shows no spread; collect with --repeats"
    for run in runs:
        lacks = [name for name in ("per_position", "rows", "engine_version") if not run.get(name)]
        if lacks:
            yield f"the run of {run['date']} lacks {', '.join(lacks)}"


def _other_sampling(goldens: Sequence[Golden]) -> Iterator[str]:
    """What models.yaml sends now can't match a golden that was sampled otherwise."""
    for curve in curves(goldens):
        first = curve[0]
        mode = models.load(first.prefix).mode(first.thinking)
        for name, value in first.key.items():
            kind, _, field = name.partition(".")
            if kind == "sampling" and mode.sampling.get(field) != value:
                yield f"{first}: {name} {value}, models.yaml sends {mode.sampling.get(field)}"
