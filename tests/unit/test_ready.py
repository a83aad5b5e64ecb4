"""Readiness against a server in this process, and the look before a launch."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import run_files
from utils import processes, records
from utils.errors import NotMeasured, UsageError
from utils.progress import Progress
from utils.serving import launch, ready
from utils.serving.ready import Target

MODEL = "org/model"
GOOD = (200, {"usage": {"completion_tokens": 1}})


class Server(http.server.ThreadingHTTPServer):
    """Answers from lists: the last answer of each stays."""

    def __init__(self) -> None:
        self.models: list[tuple[int, Any]] = [(200, {"data": [{"id": MODEL}]})]
        self.generations: list[tuple[int, Any]] = [GOOD]
        self.version: Any = {"version": "0.32.0+cpu"}
        self.asked: list[tuple[str, Any]] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: object) -> None:
        pass

    def answer(self, answers: list[tuple[int, Any]], body: Any) -> None:
        self.server.asked.append((self.path, body))
        status, content = answers.pop(0) if len(answers) > 1 else answers[0]
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/version":
            self.answer([(200, self.server.version)], None)
            return
        self.answer(self.server.models, None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(self.server.generations, body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(ready, "POLL_S", 0.01)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    found = Server()
    threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def wait(server: Server, timeout_s: float = 2, **change: Any) -> float:
    url = f"http://127.0.0.1:{server.server_port}"
    facts = {"base_url": url, "model": MODEL, "endpoint": "chat", "server_pid": os.getpid()}
    return ready.wait(Target(**{**facts, **change}), timeout_s)


def test_asks_for_one_real_generation(server: Server) -> None:
    assert wait(server) < 2
    assert [path for path, _ in server.asked] == ["/v1/models", "/v1/chat/completions"]
    assert server.asked[1][1]["model"] == MODEL


def test_the_completions_endpoint(server: Server) -> None:
    wait(server, endpoint="completions")
    assert server.asked[1][0] == "/v1/completions"
    assert "prompt" in server.asked[1][1]


@pytest.mark.parametrize(
    "early",
    [
        (503, {"error": "loading"}),
        (500, "traceback"),
        (404, {}),
        (429, {}),
        (200, "not json"),
        (200, []),
        (200, {"usage": None}),
        (200, {"usage": {"completion_tokens": 0}}),
    ],
)
def test_waits_while_generation_does_not_work(server: Server, early: tuple[int, Any]) -> None:
    server.generations = [early, early, GOOD]
    wait(server)
    assert len(server.asked) == 6


@pytest.mark.parametrize("early", [(503, {}), (200, {"data": []}), (200, {}), (200, "x")])
def test_waits_while_no_model_is_listed(server: Server, early: tuple[int, Any]) -> None:
    server.models.insert(0, early)
    wait(server)
    assert len(server.asked) == 3


@pytest.mark.parametrize("names", [["other"], ["other", MODEL]])
def test_refuses_another_model(server: Server, names: list[str]) -> None:
    server.models = [(200, {"data": [{"id": name} for name in names]})]
    with pytest.raises(NotMeasured, match=f"offers {', '.join(names)}, want {MODEL} alone"):
        wait(server)


@pytest.mark.parametrize("status", [400, 401, 422])
def test_refuses_what_will_never_work(server: Server, status: int) -> None:
    server.generations = [(status, {"error": "no chat template"})]
    with pytest.raises(NotMeasured, match=f"for good: .* {status} .*no chat template"):
        wait(server)


def test_the_deadline_says_why(server: Server) -> None:
    server.generations = [(503, {"error": "loading"})]
    with pytest.raises(NotMeasured, match=r"within 1.5 s: POST .* 503 .*loading"):
        wait(server, 1.5)


def test_nobody_listens(server: Server) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(NotMeasured, match=f"nobody listens on port {port}"):
        wait(server, 0.1, base_url=f"http://127.0.0.1:{port}")


def test_progress_is_said(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "show", lambda _, note: shown.append(note))
    shown: list[str] = []
    server.generations = [(503, {})]
    with pytest.raises(NotMeasured):
        wait(server, 1.5)
    assert shown and "503" in shown[0]


def test_a_stranger_is_named(server: Server) -> None:
    with subprocess.Popen(["sleep", "60"]) as engine:
        try:
            with pytest.raises(NotMeasured, match=rf"pid {os.getpid()} \(.*not our engine"):
                wait(server, server_pid=engine.pid)
        finally:
            engine.kill()
    assert server.asked == [], "not even asked"


def test_a_child_of_the_engine_may_listen(server: Server) -> None:
    wait(server, server_pid=os.getppid())


def test_one_stranger_among_ours_is_too_many(server: Server) -> None:
    code = (
        "import socket, sys; s = socket.socket();"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
        "s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(); print('ok', flush=True);"
        "sys.stdin.read()"
    )
    with socket.socket() as mine:
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        mine.bind(("127.0.0.1", 0))
        mine.listen()
        port = mine.getsockname()[1]
        argv = [sys.executable, "-c", code, str(port)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout
            other.stdout.readline()
            assert len(processes.listeners(port)) == 2
            with pytest.raises(NotMeasured, match=rf"pid {os.getpid()} "):
                wait(server, server_pid=other.pid, base_url=f"http://127.0.0.1:{port}")


def run_main(server: Server, folder: Path) -> Any:
    """Its status, and the record that it filled in."""
    record = run_files.server_command(started=records.utc_now(), ready_s=None)
    records.write_json(folder / "c.json", record, "server_command")
    url = f"http://127.0.0.1:{server.server_port}"
    argv = ["--base-url", url, "--model", MODEL, "--timeout-s", "2", "--server-pid"]
    assert ready.main([*argv, str(os.getpid()), "--record", str(folder / "c.json")]) == 0
    return records.read_json(folder / "c.json")


def test_main_records_the_time_and_the_version(server: Server, tmp_path: Path) -> None:
    record = run_main(server, tmp_path)
    assert 0 <= record["ready_s"] < 2
    assert record["engine_version"] == "0.32.0+cpu"


def test_an_engine_of_the_version_asked_for_may_run(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_VERSION", "0.32.0")
    run_main(server, tmp_path)


def test_an_engine_of_another_version_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_VERSION", "0.27.1")
    with pytest.raises(UsageError, match=r"ENGINE_VERSION is 0\.27\.1, the server says 0\.32\.0"):
        run_main(server, tmp_path)
    assert records.read_json(tmp_path / "c.json")["engine_version"] == "0.32.0+cpu"


@pytest.mark.parametrize("said", [{}, {"version": "nightly"}, "no JSON"])
def test_a_server_without_a_version_is_not_compared(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: Any,
) -> None:
    server.version = said
    monkeypatch.setenv("ENGINE_VERSION", "0.27.1")
    run_main(server, tmp_path)
    assert "not compared with ENGINE_VERSION 0.27.1" in capsys.readouterr().err


@pytest.fixture
def listening() -> Iterator[Callable[[str], int]]:
    sockets: list[socket.socket] = []

    def start(host: str) -> int:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        found = socket.socket(family)
        sockets.append(found)
        found.bind((host, 0))
        found.listen()
        return int(found.getsockname()[1])

    yield start
    for found in sockets:
        found.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_port_in_use_is_refused(listening: Callable[[str], int], host: str) -> None:
    port = listening(host)
    with pytest.raises(UsageError, match=rf"PORT {port} is in use: pid {os.getpid()} \(.*python"):
        launch.check_port(port)


def test_a_free_port_passes() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launch.check_port(port)
    assert processes.listeners(port) == []


def test_secrets_are_masked() -> None:
    shown = launch.read_command(["HF_TOKEN=x", "MAX_TOKENS_PER_RANK=8", "vllm"]).shown_env()
    assert shown == {"HF_TOKEN": "***", "MAX_TOKENS_PER_RANK": "8"}


def test_our_own_environment_is_kept_from_the_engine() -> None:
    venv = launch.ROOT / ".venv"
    environment = {
        "PATH": f"{venv}/bin:/usr/bin",
        "VIRTUAL_ENV": str(venv),
        "PYTHONPATH": str(launch.ROOT),
        "ENGINE_PYTHON": sys.executable,
    }
    changed, unset = launch.engine_environment(environment, launch.Command({}, ["x"]))
    assert changed == {"PATH": f"{Path(sys.executable).parent}:/usr/bin"}
    assert unset == ["VIRTUAL_ENV", "PYTHONPATH"]


def test_an_engine_that_has_ended_is_not_waited_for() -> None:
    gone = Target("http://127.0.0.1:9", MODEL, "chat", 999_999_999)
    with pytest.raises(NotMeasured, match="has ended"):
        ready.wait(gone, 60.0)
