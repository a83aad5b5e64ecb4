"""Where a baseline is from: a run's results, a stored run, or the newest good one of a store."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from utils import errors, records
from utils.errors import NotMeasured, UsageError
from utils.evals.validate_scores import Options
from utils.records import Json
from utils.report import content, past_run
from utils.report.comparison import key


def load(path: Path, options: Options) -> Json:
    """One run: a stored one, or a directory of results.

    Raises:
        UsageError: it is neither, or a store of several runs.
        NotMeasured: the results don't say of which run they are.
    """
    stored = list(_stored(path))
    if len(stored) > 1:
        raise UsageError(f"{path} holds {len(stored)} past runs; name one of them")
    if stored:
        return stored[0]
    return past_run.of(content.gather(path, options))


def choose(path: Path, run: Json, options: Options) -> list[Json]:
    """What to compare a run with, the baseline first.

    Of a store these are the complete, green runs that share a cell with it, the newest first;
    the older ones tell how much such runs differ.

    Raises:
        UsageError: there is nothing at the path that could be compared.
        NotMeasured: the store holds no such run; the text says why each was passed over.
    """
    stored = list(_stored(path))
    if not stored:
        return [load(path, options)]
    stored.sort(key=lambda past: -records.parse_time(past["started"]))
    told = [(past, _unfit(past, run)) for past in stored]
    if fit := [past for past, why in told if not why]:
        return fit
    text = "; ".join(f"{past['started']}: {why}" for past, why in told)
    raise NotMeasured(f"{path} holds no baseline for this run: {text}")


def _unfit(past: Json, run: Json) -> str | None:
    if past["run_ids"] == run["run_ids"]:
        return "it is this run"
    if past["status"] != errors.PASS:
        return f"not complete and green ({past['summary']})"
    if not {key(p) for p in past["points"]} & {key(p) for p in run["points"]}:
        return "it shares no cell"
    return None


def _stored(path: Path) -> Iterator[Json]:
    """Past runs in a file, in a folder, or in an artifact as GitHub hands it out, a zip."""
    if path.is_dir():
        for file in sorted(path.glob("*.json")):
            data = _parsed(str(file), file.read_bytes())
            if isinstance(data, dict) and str(data.get("schema")).startswith(past_run.SCHEMA):
                yield past_run.checked(str(file), data)
    elif path.suffix == ".zip":
        yield from _zipped(path)
    elif path.is_file():
        yield past_run.checked(str(path), _parsed(str(path), path.read_bytes()))
    else:
        raise UsageError(f"{path}: no such file or directory")


def _zipped(path: Path) -> Iterator[Json]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".json"))
            files = [(f"{path}:{name}", archive.read(name)) for name in names]
    except (OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:  # one: encrypted
        raise UsageError(f"{path}: can't be read ({error})") from error
    for name, data in files:
        yield past_run.checked(name, _parsed(name, data))


def _parsed(name: str, data: bytes) -> object:
    try:
        return records.parse_json(data.decode())
    except ValueError as error:
        raise UsageError(f"{name}: not valid JSON ({error})") from error
