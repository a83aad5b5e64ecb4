"""collection.json: which cells of a golden curve were asked for, and what became of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import NotMeasured, UsageError
from utils.evals import al_record
from utils.golden import cells
from utils.golden.cells import Cell
from utils.golden.rows import Row
from utils.records import Json

FILE = "collection.json"
PENDING, MEASURED, NOT_AVAILABLE = "pending", "measured", "not_available"
LOG = "collect.log"


@dataclass(frozen=True)
class Order:
    """A collection as somebody asked for it; options are further ones of `measure`."""

    row: Row
    cells: Sequence[Cell]
    folder: Path
    hardware: str
    model_revision: str | None = None
    options: Sequence[str] = ()

    def asked(self) -> dict[str, str]:
        """What must be the same in every call for one folder."""
        row = asdict(self.row)
        varying = ("name", "golden", "num_speculative_tokens", "thinking")
        facts: dict[str, Any] = {name: row[name] for name in row if name not in varying}
        return {
            name: json.dumps(value, sort_keys=True)
            for name, value in {**facts, "options": list(self.options)}.items()
        }


def read(path: Path) -> Json:
    """What became of a collection.

    Raises:
        UsageError: the file can't be used.
    """
    try:
        data: Json = records.read_json(path, "collection")
    except NotMeasured as error:
        raise UsageError(f"{error}: mend it, or take a new folder") from error
    return data


class Ledger:
    """The file, read and written whole; nothing in it is believed without its record."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.path = order.folder / FILE
        self.data = self._read() if self.path.exists() else self._new()
        known = {_key(entry) for entry in self.data["cells"]}
        self.data["cells"] += [_pending(cell) for cell in order.cells if _of(cell) not in known]
        self.data["cells"].sort(key=_key)
        self.write()

    def _new(self) -> Json:
        return {
            "schema": "collection/1",
            "collection": self.order.row.name,
            "asked": self.order.asked(),
            "hardware": self.order.hardware,
            "model_revision": self.order.model_revision,
            "started": records.utc_now(),
            "cells": [],
        }

    def _read(self) -> Json:
        data = read(self.path)
        new = self._new()
        names = ("collection", "hardware", "model_revision")
        differs = [name for name in names if data[name] != new[name]]
        differs += sorted(k for k, v in new["asked"].items() if data["asked"].get(k) != v)
        if differs:
            raise UsageError(
                f"{self.path} was begun with another {', another '.join(differs)}; "
                "ask for the same, or take a new folder"
            )
        return data

    def write(self) -> None:
        records.write_json(self.path, self.data, "collection")

    def entry(self, cell: Cell) -> Json:
        return next(entry for entry in self.data["cells"] if _key(entry) == _of(cell))

    def begin(self, cell: Cell) -> Path:
        """A fresh folder for one more attempt; those before it are kept."""
        entry = self.entry(cell)
        entry.update(_pending(cell), attempts=entry["attempts"] + 1)
        entry["folder"] = f"{cell.folder}/attempt{entry['attempts']}"
        self.write()
        folder = self._folder(entry)
        if folder.exists():
            raise UsageError(f"{folder} is there already; does another collection run?")
        folder.mkdir(parents=True)
        return folder

    def judge(self, cell: Cell) -> Json:
        """Look at a cell's last attempt again, and write down what it comes to."""
        entry = self.entry(cell)
        log = _text(self._folder(entry) / "server.log")
        try:
            found = cells.check(self.record(entry), self.order.row, cell, log)
        except NotMeasured as error:
            entry.update(outcome=NOT_AVAILABLE, reason=error.reason, detail=str(error))
        else:
            length, steps = found.acceptance_length, found.steps
            entry.update(outcome=MEASURED, acceptance_length=length, steps=steps)
        self.write()
        return entry

    def record(self, entry: Json) -> Json:
        """The record of a cell's last attempt.

        Raises:
            NotMeasured: there is none; the attempt's log says why.
        """
        path = self.record_path(entry)
        if not path.exists():
            raise NotMeasured(self.last_words(entry), "no_record")
        return al_record.read(path)

    def record_path(self, entry: Json) -> Path:
        name = al_record.file_name(entry["thinking"], entry["num_speculative_tokens"])
        return self._folder(entry) / name

    def last_words(self, entry: Json) -> str:
        """The last error in an attempt's log, else its last line."""
        lines = _text(self._folder(entry) / LOG).splitlines()
        said = [line for line in lines if "error: " in line] or lines or ["it said nothing"]
        return said[-1].strip()[:300]

    def _folder(self, entry: Json) -> Path:
        name: str = entry["folder"]
        return self.order.folder / name

    def measured(self) -> Iterator[Json]:
        return (entry for entry in self.data["cells"] if entry["outcome"] == MEASURED)


def _text(log: Path) -> str:
    """A log, empty where there is none; whoever needs one asks for its content."""
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def _of(cell: Cell) -> tuple[str, int, int]:
    return cell.thinking, cell.num_speculative_tokens, cell.run


def _key(entry: Json) -> tuple[str, int, int]:
    return entry["thinking"], entry["num_speculative_tokens"], entry["run"]


def _pending(cell: Cell) -> Json:
    blank = ("reason", "detail", "folder", "acceptance_length", "steps")
    return {**asdict(cell), "outcome": PENDING, "attempts": 0, **dict.fromkeys(blank)}
