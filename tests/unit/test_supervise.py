"""The supervisor, run as recipes run it: by path, in a process of its own."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from utils.serving import supervise

SUPERVISE = Path(supervise.__file__)
IGNORE_TERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
STUBBORN = f"{IGNORE_TERM}time.sleep(300)"
# Leaves session, parent and name behind, as a daemon does.
DAEMON = f"""
import ctypes, os
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
ctypes.CDLL(None).prctl(15, b"VLLM::EngineCor", 0, 0, 0)
{STUBBORN}
"""


class Supervised:
    """A supervisor and what runs below it, found by a token in the environment."""

    def __init__(self, folder: Path) -> None:
        self.token = f"SPECGATE_TEST={folder}"
        self.log = folder / "log"
        self.status = folder / "status"

    def start(self, *argv: str, grace_s: float = 1.0, **popen: object) -> subprocess.Popen[str]:
        options = ["--log", str(self.log), "--status-file", str(self.status)]
        command = [sys.executable, "-I", str(SUPERVISE), *options, "--grace-s", str(grace_s), "--"]
        environment = {**os.environ, "SPECGATE_TEST": self.token.partition("=")[2]}
        return subprocess.Popen(
            [*command, *argv],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            **popen,  # type: ignore[call-overload]
        )

    def python(self, code: str, **options: object) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-c", code, **options)  # type: ignore[arg-type]

    def alive(self) -> list[int]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if self.token.encode() in words:
                found.append(int(folder.name))
        return found

    def wait_for(self, count: int, seconds: float = 5) -> None:
        until(lambda: len(self.alive()) == count, seconds, lambda: (self.alive(), count))


@pytest.fixture
def below(tmp_path: Path) -> Iterator[Supervised]:
    run = Supervised(tmp_path)
    yield run
    for pid in run.alive():  # only what a failing test left behind
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def orphans_are_ours() -> Iterator[None]:
    libc = ctypes.CDLL(None)
    libc.prctl(36, 1, 0, 0, 0)
    yield
    libc.prctl(36, 0, 0, 0, 0)


@pytest.mark.parametrize("status", [0, 7])
def test_hands_on_the_status(below: Supervised, status: int) -> None:
    assert below.start("sh", "-c", f"echo out; echo err >&2; exit {status}").wait(5) == status
    assert below.log.read_text() == "out\nerr\n"
    assert below.status.read_text() == f"{status}\n"


def test_a_signal_is_128_and_its_number(below: Supervised) -> None:
    assert below.start("sh", "-c", "kill -SEGV $$").wait(5) == 128 + signal.SIGSEGV


def test_a_missing_program(below: Supervised) -> None:
    below.status.write_text("0\n")  # of an earlier run
    run = below.start("/no/such/program")
    assert run.wait(5) == 127
    assert run.stderr
    assert "can't start /no/such/program: No such file" in run.stderr.read()
    assert not below.status.exists()


def test_usage() -> None:
    for argv in ([], ["--grace-s", "1"], ["--"]):
        with pytest.raises(SystemExit) as caught:
            supervise.main(argv)
        assert caught.value.code == 2


def test_words_after_the_dashes_are_the_commands_own(below: Supervised) -> None:
    assert below.start("echo", "--log", "x", "--", "y").wait(5) == 0
    assert below.log.read_text() == "--log x -- y\n"


def test_the_command_gets_clean_signals_and_no_stdin(below: Supervised) -> None:
    code = (
        "import signal, sys; print(signal.pthread_sigmask(0, []), signal.getsignal(signal.SIGINT)"
        " is signal.default_int_handler, repr(sys.stdin.read()))"
    )
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731 -- as bash does
    assert below.python(code, preexec_fn=ignore, stdin=subprocess.PIPE).wait(5) == 0
    assert below.log.read_text() == "set() True ''\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_reaches_a_willing_command_at_once(below: Supervised, number: int) -> None:
    run = below.start("sleep", "60", grace_s=5)
    below.wait_for(2)
    started = time.monotonic()
    run.send_signal(number)
    assert run.wait(9) == 128 + signal.SIGTERM
    assert time.monotonic() - started < 2
    assert below.alive() == []


def test_a_stop_waits_out_the_grace_and_no_longer(below: Supervised) -> None:
    run = below.python(STUBBORN)
    below.wait_for(2)
    time.sleep(0.3)
    started = time.monotonic()
    run.terminate()
    assert run.wait(9) == 128 + signal.SIGKILL
    assert 1 <= time.monotonic() - started < 2.5
    assert below.alive() == []


def test_a_command_that_cleans_up_is_let(below: Supervised) -> None:
    code = (
        "import signal, time; got = [];"
        "signal.signal(signal.SIGTERM, lambda *_: got.append(1)); print('set', flush=True);"
        "signal.pause(); time.sleep(0.4); print(len(got), 'saved'); raise SystemExit(5)"
    )
    run = below.python(code, grace_s=5)
    below.wait_for(2)
    while "set" not in below.log.read_text():
        time.sleep(0.01)
    run.terminate()
    assert run.wait(9) == 5
    assert below.log.read_text() == "set\n1 saved\n", "told once"


@pytest.mark.parametrize("end", ["exit 3", "kill -KILL $$"], ids=["exits", "killed"])
def test_nobody_outlives_the_command(below: Supervised, end: str) -> None:
    script = f"'{sys.executable}' -c \"$1\" & '{sys.executable}' -c \"$2\"; sleep 0.3; {end}"
    run = below.start("bash", "-c", script, "-", STUBBORN, DAEMON)
    assert run.wait(9) == (3 if end == "exit 3" else 128 + signal.SIGKILL)
    assert below.alive() == []


def test_the_status_is_known_before_the_stragglers_are_gone(below: Supervised) -> None:
    run = below.start(
        "bash", "-c", f"'{sys.executable}' -c \"$1\" & sleep 0.3; exit 9", "-", STUBBORN
    )
    until(below.status.exists, 5)
    assert len(below.alive()) == 2, "the supervisor and its straggler"
    assert run.wait(9) == 9


def test_an_unwritable_status_file_does_not_keep_it_from_clearing(below: Supervised) -> None:
    code = f"import os, shutil; shutil.rmtree({str(below.log.parent)!r}); {STUBBORN}"
    run = below.python(code, start_new_session=True)
    below.wait_for(2)
    time.sleep(0.3)
    run.terminate()
    assert run.wait(9) == 128 + signal.SIGKILL
    assert below.alive() == []


@pytest.mark.usefixtures("orphans_are_ours")
def test_clears_when_its_parent_is_killed(below: Supervised) -> None:
    script = f"'{sys.executable}' -c \"$1\"; exec '{sys.executable}' -c \"$2\""
    line = supervise.command_line(["bash", "-c", script, "-", DAEMON, STUBBORN], grace_s=0.5)
    code = f"import subprocess; subprocess.run({line!r})"
    environment = {**os.environ, "SPECGATE_TEST": below.token.partition("=")[2]}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment)
    below.wait_for(4)  # with the supervisor, the command and its daemon
    time.sleep(0.3)
    assert len(below.alive()) == 4
    parent.kill()
    parent.wait(5)
    below.wait_for(0)


def test_starts_nothing_when_its_parent_is_gone_already(below: Supervised) -> None:
    command = [sys.executable, "-I", str(SUPERVISE), "--parent-pid", "1", "--", "touch"]
    assert subprocess.run([*command, str(below.log)], check=False).returncode == 143
    assert not below.log.exists()


def test_its_command_dies_with_a_killed_supervisor(below: Supervised) -> None:
    run = below.start("sleep", "60")
    below.wait_for(2)
    run.kill()
    run.wait(5)
    below.wait_for(0)


def test_descendants_are_all_below_and_only_the_living() -> None:
    script = "sleep 60 & sleep 0.2 & exec sleep 60"
    run = subprocess.Popen(["bash", "-c", script], stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.8)
        below_run = supervise.descendants(run.pid)
        assert len(below_run) == 1, "the zombie doesn't count"
        assert below_run < supervise.descendants(os.getpid())
        assert run.pid in supervise.descendants(os.getpid())
    finally:
        for pid in (*below_run, run.pid):
            os.kill(pid, signal.SIGKILL)
        run.wait(5)


def test_command_line_names_every_option(tmp_path: Path) -> None:
    line = supervise.command_line(["x"], log=tmp_path / "l", grace_s=2, status_file=tmp_path / "s")
    assert line[1:3] == ["-I", str(SUPERVISE.resolve())]
    options = ["--grace-s", "2", "--log", f"{tmp_path}/l", "--status-file", f"{tmp_path}/s"]
    assert line[3:] == [*options, "--", "x"]
