"""What a server says of itself: its process, its arguments, its information."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from utils import processes
from utils.acceptance import checks, meter, preflight, window
from utils.acceptance.checks import Asked, Readback
from utils.acceptance.engines import NO_METRICS, Counts, Speculation, load, sglang
from utils.acceptance.exposition import Series
from utils.acceptance.preflight import Said, Target
from utils.errors import NotMeasured

LISTEN = (
    "import socket,time; s=socket.create_server(('127.0.0.1',0));"
    "print(s.getsockname()[1],flush=True); time.sleep(60)"
)


@contextlib.contextmanager
def listening(*arguments: str, **environ: str) -> Iterator[int]:
    """A process that listens on a port, with a command line and an environment."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN, *arguments],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(port: int) -> Said:
    said = Said()
    target = Target(f"http://127.0.0.1:{port}", (), load("sglang"), "m")
    meter.SCRAPE_TIMEOUT_S, usual = 0.2, meter.SCRAPE_TIMEOUT_S
    try:
        preflight.ask(window.local_session(), target, said)
    except NotMeasured as error:
        if error.reason != "unreachable":  # it only listens
            raise
    finally:
        meter.SCRAPE_TIMEOUT_S = usual
    return said


def test_a_process_with_forced_acceptance_is_refused() -> None:
    with (
        listening(SGLANG_SIMULATE_ACC_LEN="2.5") as port,
        pytest.raises(NotMeasured, match=r"SGLANG_SIMULATE_ACC_LEN=2\.5 set"),
    ):
        ask(port)


def test_the_command_line_of_the_listener_is_read() -> None:
    words = ["--speculative-algorithm", "EAGLE3", "--speculative-num-draft-tokens", "4"]
    with listening(*words) as port:
        said = ask(port)
    assert said.argv
    assert said.argv[-4:] == tuple(words)
    assert said.speculation.num_speculative_tokens == 3


def test_a_command_line_that_no_engine_takes_is_named() -> None:
    with (
        listening("--speculative-num-steps", "many") as port,
        pytest.raises(NotMeasured, match=r"the command line of pid \d+ holds what no engine says"),
    ):
        ask(port)


def test_a_process_is_known_by_its_start() -> None:
    with listening() as port:
        pid = processes.find(port)
        assert pid
        assert processes.alive(pid)
        assert processes.parent(pid) == os.getpid()
        assert (processes.started(pid) or 0) > 0
    assert not processes.alive(pid)
    assert (processes.started(pid), processes.argv(pid), processes.find(port)) == (None, (), None)


def test_two_sources_are_one_word_and_all_refusals() -> None:
    argv = Speculation("eagle3", None, not_real=("a=1",), varying=("v",))
    info = Speculation("other", 3, "head", not_real=("b=2",), varying=("v",), prefix_caching=True)
    assert preflight.merged(argv, info) == Speculation(
        "eagle3", 3, "head", not_real=("a=1", "b=2"), varying=("v",), prefix_caching=True
    )


@pytest.mark.parametrize(
    ("spoken", "words"),
    [
        (Speculation("ngram", 3), "method of the server is ngram, asked for mtp"),
        (Speculation("mtp", 2), "N by its arguments of the server is 2, asked for 3"),
        (Speculation("mtp", 3), None),
        (Speculation("eagle", 3), None),
        (Speculation(), None),
    ],
)
def test_n_and_method_are_compared(spoken: Speculation, words: str | None) -> None:
    asked = Asked(3, "mtp", "off", 1, 8)
    scrape = window.Scrape("", {})
    if words is None:
        preflight.agree(NO_METRICS, scrape, Said(speculation=spoken), asked)
    else:
        with pytest.raises(NotMeasured, match=words):
            preflight.agree(NO_METRICS, scrape, Said(speculation=spoken), asked)


@pytest.mark.parametrize(
    ("tree", "rows", "agrees"), [(None, 4, True), (None, 8, False), (7, 8, True), (7, 4, False)]
)
def test_metrics_that_show_a_tree_are_compared_with_its_size(
    tree: int | None, rows: int, agrees: bool
) -> None:
    """SGLang's gauge counts the rows of a step, the bonus row too."""
    scrape = window.Scrape("", {Series("u", sglang.DRAFT_TOKENS, ()): float(rows)})
    said = Said(speculation=Speculation(drafts_per_step=tree))
    expected = contextlib.nullcontext() if agrees else pytest.raises(NotMeasured, match="N of the")
    with expected:
        preflight.agree(sglang.COUNTERS, scrape, said, Asked(3, "eagle", "off", 1, 8))
    shown = Readback(drafts_per_step=tree, draft_length=rows - 1)
    found = checks.run(Asked(3, "eagle", "off", 1, 8), Counts(1, 1), [], shown)
    assert {c.name: c.ok for c in found}["draft_length_is_the_servers"] is agrees
