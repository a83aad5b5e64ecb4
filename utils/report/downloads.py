"""Raw files inside the page: a reader can recompute the verdicts without asking for an artifact."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Of the compressed files, all jobs together: the page must open at once, and be mailed.
MOST_BYTES = 2_000_000
# A file above this is no record or log of ours, and isn't read at all.
MOST_READ = 50_000_000
PREFERRED = (".json", ".jsonl", ".log")
OURS = ("report.html", "summary.md", "comment.md", "junit.xml")


@dataclass(frozen=True)
class Download:
    """A file of a job. href: a data: link to it, gzipped; None where the page has no room."""

    job: str
    name: str
    size: int
    href: str | None


def collect(folders: Sequence[tuple[str, Path]], room: int = MOST_BYTES) -> list[Download]:
    """Every visible file of the jobs; JSON goes in first, then logs, the small ones before."""
    files = [
        (job, path)
        for job, folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.name not in OURS
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    roots, found, full = dict(folders), [], set()
    for job, path in sorted(files, key=_order):
        rank, size, _ = _order((job, path))
        href = None
        if rank not in full and size <= MOST_READ:
            packed = gzip.compress(path.read_bytes(), mtime=0)
            if len(packed) <= room:
                room -= len(packed)
                href = "data:application/gzip;base64," + base64.b64encode(packed).decode()
            else:
                full.add(rank)  # the next ones of its kind are larger
        found.append(Download(job, str(path.relative_to(roots[job])), size, href))
    return sorted(found, key=lambda one: (one.job, one.name))


def _order(item: tuple[str, Path]) -> tuple[int, int, str]:
    _, path = item
    rank = PREFERRED.index(path.suffix) if path.suffix in PREFERRED else len(PREFERRED)
    return rank, path.stat().st_size, str(path)
