"""Who listens on a TCP port of this machine, by /proc alone."""

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
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone"
    return b" ".join(words).decode(errors="replace").strip()[:120]
