"""Which process listens on a local port, and what it was started with (Linux /proc)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LISTEN = "0A"


@dataclass(frozen=True)
class Listener:
    """A listening process; environ is empty where /proc doesn't let us read it."""

    pid: int
    argv: tuple[str, ...]
    environ: dict[str, str]

    def __str__(self) -> str:
        return f"pid {self.pid} ({' '.join(self.argv)[:120] or 'command unknown'})"


def find(port: int) -> Listener | None:
    """The process that listens on a TCP port of this machine, if we may see it."""
    inodes = set(_listening_inodes(port))
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        if inodes & set(_socket_inodes(descriptors)):
            return describe(int(descriptors.parent.name))
    return None


def describe(pid: int) -> Listener:
    """Command line and environment of a process, empty where unreadable."""
    pairs = (entry.partition("=") for entry in _strings(pid, "environ"))
    environ = {name: value for name, _, value in pairs if name}
    return Listener(pid, tuple(_strings(pid, "cmdline")), environ)


def _strings(pid: int, file: str) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.rstrip(b"\0").split(b"\0")]


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _socket_inodes(descriptors: Path) -> Iterator[str]:
    try:
        entries = list(descriptors.iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie doesn't."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
