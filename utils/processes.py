"""Who listens on a TCP port of this machine, and what a process is, by /proc alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"


@dataclass(frozen=True)
class Listener:
    """One listening socket and the processes that hold it, as far as we may look."""

    inode: str
    pids: tuple[int, ...]

    def __str__(self) -> str:
        return " and ".join(f"pid {pid} ({command(pid)})" for pid in self.pids) or (
            "a process that we may not look into"
        )


def listeners(port: int) -> list[Listener]:
    """The listening sockets of a port, IPv4 and IPv6."""
    inodes = sorted(_inodes(port))
    holders: dict[str, list[int]] = {f"socket:[{inode}]": [] for inode in inodes}
    if inodes:
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                for link in _links(entry.name) & holders.keys():
                    holders[link].append(int(entry.name))
    return [Listener(i, tuple(sorted(holders[f"socket:[{i}]"]))) for i in inodes]


def _inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):  # a kernel without IPv6
            continue
        for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            local, state, inode = words[1], words[3], words[9]
            if state == _LISTEN and int(local.rpartition(":")[2], 16) == port:
                found.add(inode)
    return found


def _links(pid: str) -> set[str]:
    """What the open files of a process point to; empty when it is gone or not ours to see."""
    found = set()
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            found.add(os.readlink(entry.path))
    except OSError:
        return found
    return found


def command(pid: int) -> str:
    """A process's command line, shortened."""
    words = argv(pid)
    return " ".join(words).strip()[:120] if words else "gone"


def find(port: int) -> int | None:
    """The process that listens on a port, if we may see it."""
    return next((pid for found in listeners(port) for pid in found.pids), None)


def argv(pid: int) -> tuple[str, ...]:
    """A process's command line; empty when it is gone or not ours to see."""
    return tuple(_strings(pid, "cmdline"))


def environ(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty as for argv."""
    pairs = (entry.partition("=") for entry in _strings(pid, "environ"))
    return {name: value for name, _, value in pairs if name}


def parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie doesn't."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def started(pid: int) -> int | None:
    """When a process started, in ticks since boot; None when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _strings(pid: int, file: str) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.rstrip(b"\0").split(b"\0")]


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; the name before them may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
