from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.shell.conftest import ROOT
from utils import progress
from utils.progress import Progress, duration, last_line, line

LINES = [
    ({"total": 80}, 20, 60.0, "", "AL: 20 of 80, 25%, 60 s so far, about 3 min left"),
    ({"total": 80}, 0, 60.0, "x", "AL: 0 of 80, 0%, 60 s so far; x"),
    ({"total": 80}, 80, 600.0, "", "AL: 80 of 80, 100%, 10 min so far"),
    ({"limit_s": 600}, 0, 45.0, "loading", "AL: 45 s so far, limit 10 min; loading"),
    ({}, 0, 45.0, "", "AL: 45 s so far"),
]


@pytest.mark.parametrize(("asked", "done", "elapsed_s", "note", "said"), LINES)
def test_lines(asked: Any, done: int, elapsed_s: float, note: str, said: str) -> None:
    step = Progress("AL", **asked)
    step.done = done
    assert line(step, elapsed_s, note) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (7500, "2 h 5 min")],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_plain_lines_come_now_and_then(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("AL", 100) as step:
        for _ in range(70):
            clock[0] += 1
            step.step("on \x1b[31mit")
    said = capsys.readouterr().err.splitlines()
    assert [row.split(",")[0] for row in said] == ["AL: 30 of 100", "AL: 60 of 100"]
    assert said[0].endswith("; on [31mit"), "a log's control characters stay out"


def test_a_short_step_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("AL", 3) as step:
        step.step()
    assert capsys.readouterr().err == ""


def test_where_every_step_counts_each_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("collection", 2, every_s=0) as step:
        step.step()
        step.step()
    assert len(capsys.readouterr().err.splitlines()) == 2


BARRED = """
import time
from utils import progress
progress.REFRESH_S = 0
with progress.Progress("[AL]", 4) as step:
    for _ in range(4):
        step.step("note [x]")
"""


def in_a_terminal(code: str) -> str:
    import os
    import pty

    main, terminal = pty.openpty()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stderr=terminal, check=False)
    os.close(terminal)
    shown = os.read(main, 65536).decode()
    os.close(main)
    assert done.returncode == 0, shown
    return shown


def test_a_terminal_gets_a_bar() -> None:
    shown = in_a_terminal(BARRED)
    assert "4/4" in shown
    assert "[AL]" in shown
    assert "note [x]" in shown


def test_a_terminal_without_rich_gets_lines() -> None:
    shown = in_a_terminal(
        f"import sys; sys.modules['rich.console'] = None\n{BARRED}".replace(
            "REFRESH_S = 0", "EVERY_S = 0"
        ).replace(", 4)", ", 4, every_s=0)")
    )
    assert "4 of 4, 100%" in shown


@pytest.mark.parametrize(
    ("content", "last"),
    [
        (b"one\ntwo\n\n", "two"),
        (b" 10%|#  | 1/10 [00:01]\r 20%|## | 2/10 [00:02]", "20%|## | 2/10 [00:02]"),
        (b"", ""),
        (b"\xff\xfe\n" + b"x" * 9000 + b"\nlast", "last"),
    ],
)
def test_last_line(content: bytes, last: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(content)
    assert last_line(log) == last
    assert last_line(tmp_path / "none") == ""


def test_it_imports_the_standard_library_alone() -> None:
    code = "from utils import progress; print({name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = eval(done.stdout) - set(sys.stdlib_module_names)
    assert loaded <= {"utils", "__main__"}
