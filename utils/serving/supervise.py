"""Run one command so that nothing it starts outlives it: `supervise.py [options] -- argv...`.

Standard library only, run by path under `python3 -I`, so that an engine's environment can't
break it. The supervisor is a child subreaper: whatever daemonizes, calls setsid or loses its
parent below it becomes its child, and "no child left" is the proof that nothing is alive.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

GRACE_S = 4.0
KILL_WAIT_S = 1.0
SCAN_S = 0.05
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
WATCHED = STOP_SIGNALS | {signal.SIGCHLD}

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def command_line(
    argv: Sequence[str],
    *,
    log: Path | None = None,
    grace_s: float = GRACE_S,
    status_file: Path | None = None,
    detached: bool = False,
) -> list[str]:
    """The argv that runs `argv` under a supervisor of its own; detached: its parent may die."""
    options = ["--grace-s", str(grace_s)]
    if detached:
        options += ["--parent-pid", "0"]
    if log:
        options += ["--log", str(log)]
    if status_file:
        options += ["--status-file", str(status_file)]
    return [sys.executable, "-I", str(Path(__file__).resolve()), *options, "--", *argv]


def supervise(
    argv: Sequence[str],
    *,
    log: Path | None = None,
    grace_s: float = GRACE_S,
    status_file: Path | None = None,
    parent_pid: int | None = None,
) -> int:
    """Run argv until it ends, a stop signal comes or `parent_pid` dies; then clear everything.

    Takes over the signals and children of this process: call it from a process of its own.
    Returns the command's exit status, 128+n for a signal, within grace_s + 1.5 s of the stop.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would hide every exit status
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if parent_pid is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:  # it died before the line above: no signal will come
            return 128 + signal.SIGTERM
    if status_file:
        status_file.unlink(missing_ok=True)
    try:
        family = _Family(_start(argv, log, mask), status_file)
    except OSError as error:
        print(f"supervise: can't start {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    while family.status is None:
        if signal.sigwaitinfo(WATCHED).si_signo in STOP_SIGNALS:
            break
        family.reap()
    family.stop(grace_s)
    return 128 + signal.SIGKILL if family.status is None else family.status


class _Family:
    """The command and everything that descends from it."""

    def __init__(self, child: subprocess.Popen[bytes], status_file: Path | None) -> None:
        self._child = child
        self._status_file = status_file
        self.status: int | None = None

    def reap(self) -> bool:
        """Collect who has ended; False when nobody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child.pid:
                self._record(os.waitstatus_to_exitcode(status))

    def _record(self, code: int) -> None:
        self._child.returncode = code  # reaped here: Popen must not look for it
        self.status = code if code >= 0 else 128 - code
        if not self._status_file:
            return
        try:  # at once: whoever looks must not wait for the stragglers
            self._status_file.write_text(f"{self.status}\n")
        except OSError as error:  # must not keep us from stopping them
            print(f"supervise: {self._status_file}: {error.strerror}", file=sys.stderr)

    def stop(self, grace_s: float) -> None:
        """TERM to all, KILL after the grace, until nobody is left or KILL did not help."""
        told: set[int] = set()
        deadline = time.monotonic() + grace_s
        while self.reap():
            late = time.monotonic() - deadline
            if late > KILL_WAIT_S:
                left = " ".join(map(str, sorted(descendants(os.getpid()))))
                print(f"supervise: outlived SIGKILL: {left}", file=sys.stderr)
                return
            for pid in descendants(os.getpid()) - (told if late < 0 else set()):
                _send(pid, signal.SIGTERM if late < 0 else signal.SIGKILL)
                told.add(pid)
            signal.sigtimedwait(WATCHED, SCAN_S)


def descendants(root: int) -> set[int]:
    """Every process below `root` that still runs; zombies don't."""
    children: dict[int, list[int]] = {}
    running: set[int] = set()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat", "rb") as file:
                # "pid (name) state ppid ...", and a name may hold spaces and parentheses
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        children.setdefault(int(parent), []).append(int(entry.name))
        if state not in b"ZX":
            running.add(int(entry.name))
    found: set[int] = set()
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found.update(below)
        queue.extend(below)
    return found & running


def _start(argv: Sequence[str], log: Path | None, mask: Iterable[int]) -> subprocess.Popen[bytes]:
    me = os.getpid()

    def prepare() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should this supervisor be killed outright
        if os.getppid() != me:
            os._exit(128 + signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGQUIT):  # bash ignores them for background jobs
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    output = log.open("wb") if log else None
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if log else None,
            start_new_session=True,
            preexec_fn=prepare,
        )
    finally:
        if output:
            output.close()


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended while we looked
        os.kill(pid, number)


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(prog="supervise.py", usage="%(prog)s [options] -- argv...")
    parser.add_argument("--log", type=Path, help="stdout and stderr of the command go here")
    parser.add_argument("--grace-s", type=float, default=GRACE_S, help="from TERM to KILL")
    parser.add_argument("--status-file", type=Path, help="gets the exit status once known")
    parser.add_argument(
        "--parent-pid", type=int, default=os.getppid(), help="stop when this parent dies; 0: never"
    )
    options = parser.parse_args(given[:cut])
    command = given[cut + 1 :]
    if not command:
        parser.error("name the command after --")
    return supervise(
        command,
        log=options.log,
        grace_s=options.grace_s,
        status_file=options.status_file,
        parent_pid=options.parent_pid or None,
    )


if __name__ == "__main__":
    raise SystemExit(main())
