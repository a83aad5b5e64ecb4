"""A recipe from start to verdict, and every way in which it can end early."""

from __future__ import annotations

import http.server
import json
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.shell.conftest import MODEL, STOP_LIMIT_S, TWIN, Run
from utils.serving import ready

EVALS = {"RUN_EVAL": "true", "EVAL_CONCURRENT_REQUESTS": "1 8"}


def test_runs_every_step_and_leaves_nothing(recipe: Run) -> None:
    assert recipe.run(TWIN, **EVALS) == 0, recipe.err
    assert recipe.clients() == [
        "bench",
        "lm_eval_run",
        "lm_eval_run",
        "speedbench_al",
        "validate_scores",
        "report",
    ]
    assert recipe.alive() == []
    meta = recipe.read("meta_env.json")
    assert (meta["completed_eval_concs"], meta["failed_eval_concs"]) == ([1, 8], [])
    assert meta["run_id"] == recipe.read("plan.json")["run_id"]
    command = recipe.read("server_command.json")
    assert command["argv"][:3] == ["vllm", "serve", MODEL]
    assert command["env"]["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert command["ready_s"] > 0
    assert "engine starts" in (recipe.results / "server.log").read_text()


def test_clients_ignore_proxies_and_the_engine_gets_none_of_our_paths(recipe: Run) -> None:
    root = str(TWIN.parents[2])
    caller = {"SGLANG_SIMULATE_ACC_LEN": "3", "PYTHONPATH": f"{root}:/opt/engine"}
    assert recipe.run(**caller) == 0, recipe.err
    assert recipe.client_log()[0]["env"] == {"PYTHONPATH": root, "no_proxy": "*"}
    argv, _, environment = (recipe.folder / "vllm.log").read_text().partition("--- env\n")
    names = {line.partition("=")[0] for line in environment.splitlines()}
    assert "--enforce-eager" in argv
    assert "VLLM_CPU_KVCACHE_SPACE=2\n" in environment
    assert "PYTHONPATH=/opt/engine\n" in environment
    assert not names & {"PYTHONDONTWRITEBYTECODE", "no_proxy", "VIRTUAL_ENV"}
    assert "SGLANG_SIMULATE_ACC_LEN" not in names
    assert recipe.read("server_command.json")["unset"] == ["SGLANG_SIMULATE_ACC_LEN"]


def test_a_server_that_dies_while_loading_is_reported_at_once(recipe: Run) -> None:
    started = time.monotonic()
    assert recipe.run(engine={"die_at_start": 7}, RUN_EVAL="true") == 3
    assert time.monotonic() - started < 8, "must not wait for the ready timeout"
    assert "the server ended with status 7 during ready" in recipe.err
    assert "CUDA out of memory" in recipe.err
    assert recipe.read("meta_env.json")["conc"] == 4
    assert recipe.alive() == []


def test_a_server_that_dies_leaving_a_worker_is_cleared(recipe: Run) -> None:
    assert recipe.run(engine={"die_at_start": 7, "workers": ["stubborn", "daemon"]}) == 3
    assert "ended with status 7" in recipe.err
    assert recipe.alive() == []


def test_a_server_that_dies_mid_eval_fails_what_was_left(recipe: Run) -> None:
    engine = {"die_on_request": [4, 11]}  # ready, bench, first point, second point
    assert recipe.run(TWIN, engine=engine, **EVALS) == 3
    assert "the server ended with status 11 during lm_eval" in recipe.err
    assert "illegal memory access" in recipe.err
    meta = recipe.read("meta_env.json")
    assert (meta["completed_eval_concs"], meta["failed_eval_concs"]) == ([1], [8])
    assert recipe.clients()[-3:] == ["lm_eval_run", "validate_scores", "report"]
    assert "gate: 1 of 2 results" in recipe.out
    assert recipe.alive() == []


def test_a_server_that_dies_while_its_worker_hangs_is_still_blamed(recipe: Run) -> None:
    engine = {"die_on_request": [2, 11], "workers": ["stubborn"]}
    assert recipe.run(engine=engine) == 3
    assert "the server ended with status 11 during throughput" in recipe.err
    assert recipe.alive() == []


def test_a_dead_server_stops_the_client(recipe: Run) -> None:
    clients = {"bench": {"linger_s": 60}}
    run = recipe.start(engine={"die_on_request": [2, 11]}, clients=clients)
    recipe.wait_until(recipe.client_log)
    url = f"http://127.0.0.1:{recipe.port}/v1/chat/completions"
    with pytest.raises((ConnectionError, urllib.error.URLError)):
        urllib.request.urlopen(urllib.request.Request(url, data=b"{}"), timeout=5)
    assert run.wait(9) == 3
    assert recipe.alive() == []


def test_one_failed_point_does_not_stop_the_others(recipe: Run) -> None:
    clients = {"lm_eval_run@1": {"status": 3}}
    assert recipe.run(clients=clients, **EVALS) == 3
    meta = recipe.read("meta_env.json")
    assert meta["eval_concs"] == [1, 8]
    assert (meta["completed_eval_concs"], meta["failed_eval_concs"]) == ([8], [1])
    assert recipe.clients().count("lm_eval_run") == 2


@pytest.mark.parametrize(
    ("clients", "evals", "status"),
    [
        ({"validate_scores": {"status": 1}}, True, 1),
        ({"validate_scores": {"status": 2}}, True, 2),
        ({"validate_scores": {"status": 9}}, True, 3),
        ({"bench": {"status": 1}}, True, 3),
        ({"bench": {"status": 1}}, False, 3),
        ({"bench": {"status": 1}, "validate_scores": {"status": 1}}, True, 1),
        ({"speedbench_al": {"status": 3}}, True, 3),
        ({"report": {"status": 1}}, True, 0),
    ],
)
def test_the_exit_status_is_the_gates(recipe: Run, clients: Any, evals: bool, status: int) -> None:
    assert recipe.run(TWIN, clients=clients, RUN_EVAL="true" if evals else "false") == status
    assert recipe.alive() == []


@pytest.mark.parametrize(
    ("run_eval", "eval_only", "steps"),
    [
        ("false", "false", ["bench"]),
        ("true", "false", ["bench", "lm_eval_run", "speedbench_al", "validate_scores", "report"]),
        ("false", "true", ["lm_eval_run", "speedbench_al", "validate_scores", "report"]),
    ],
)
def test_run_eval_and_eval_only(
    recipe: Run, run_eval: str, eval_only: str, steps: list[str]
) -> None:
    assert recipe.run(TWIN, RUN_EVAL=run_eval, EVAL_ONLY=eval_only) == 0, recipe.err
    assert recipe.clients() == steps
    kinds = {cell["kind"] for cell in recipe.read("plan.json")["cells"]}
    assert ("throughput" in kinds) == (eval_only == "false")
    assert ("al" in kinds) == ("speedbench_al" in steps)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_cancel_stops_everything_in_time(
    recipe: Run, number: signal.Signals, status: int
) -> None:
    engine = {"workers": ["stubborn", "daemon"]}
    clients = {"lm_eval_run@8": {"linger_s": 60}}
    run = recipe.start(TWIN, engine=engine, clients=clients, **EVALS)
    recipe.wait_until(lambda: recipe.clients().count("lm_eval_run") == 2)
    started = time.monotonic()
    run.send_signal(number)
    time.sleep(0.2)
    run.send_signal(number)  # a second signal must not cut the cleanup short
    assert run.wait(12) == status
    assert time.monotonic() - started < STOP_LIMIT_S
    assert recipe.alive() == []
    meta = recipe.read("meta_env.json")
    assert (meta["completed_eval_concs"], meta["failed_eval_concs"]) == ([1], [8])
    for trouble in ("outlived SIGKILL", "no such job", "Traceback"):
        assert trouble not in recipe.err


def test_a_cancel_while_loading(recipe: Run) -> None:
    run = recipe.start(engine={"silent": True})
    recipe.wait_until(lambda: (recipe.results / "server.log").exists())
    time.sleep(0.5)
    started = time.monotonic()
    run.send_signal(signal.SIGINT)
    assert run.wait(9) == 130
    assert time.monotonic() - started < 2, "nobody ignores TERM here"
    assert recipe.alive() == []


def test_supervisors_clean_up_when_bash_is_killed(recipe: Run) -> None:
    engine = {"workers": ["stubborn", "daemon"]}
    run = recipe.start(engine=engine, clients={"bench": {"linger_s": 60}})
    recipe.wait_until(recipe.client_log)
    run.kill()
    run.wait(1)
    recipe.wait_until(lambda: not recipe.alive(), STOP_LIMIT_S)


def test_never_ready_ends_at_the_deadline(recipe: Run) -> None:
    started = time.monotonic()
    assert recipe.run(engine={"silent": True}, SERVER_READY_TIMEOUT_S="2") == 3
    assert 2 < time.monotonic() - started < 12
    assert "not ready within 2 s" in recipe.err
    assert recipe.clients() == []
    assert recipe.alive() == []


def test_waits_for_generation_not_for_health(recipe: Run) -> None:
    assert recipe.run(engine={"cold": 3}) == 0, recipe.err
    assert recipe.read("server_command.json")["ready_s"] >= 3 * ready.POLL_S
    assert recipe.clients() == ["bench"]


@pytest.fixture
def squatter() -> Iterator[Any]:
    """Start a foreign server on a port, in this very process."""
    servers: list[http.server.ThreadingHTTPServer] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps({"data": [{"id": MODEL}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def start(port: int) -> None:
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler))
        threading.Thread(target=servers[0].serve_forever, args=(0.01,), daemon=True).start()

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_port_in_use_is_refused_before_anything_starts(recipe: Run, squatter: Any) -> None:
    squatter(recipe.port)
    assert recipe.run() == 2
    assert f"PORT {recipe.port} is in use: pid" in recipe.err
    assert "python" in recipe.err
    assert "choose another PORT" in recipe.err
    assert not (recipe.folder / "vllm.log").exists()


def test_a_stranger_that_grabs_the_port_later_is_refused(recipe: Run, squatter: Any) -> None:
    run = recipe.start(engine={"silent": True})
    recipe.wait_until(lambda: (recipe.folder / "vllm.log").exists())
    squatter(recipe.port)
    assert run.wait(10) == 3
    assert "which is not our engine" in recipe.err
    assert recipe.clients() == []


def test_another_model_is_refused(recipe: Run) -> None:
    assert recipe.run(engine={"models": ["some/other"]}) == 3
    assert f"the server offers some/other, want {MODEL}" in recipe.err
    assert recipe.clients() == []
