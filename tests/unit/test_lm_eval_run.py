from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.speculating import MODEL, SpeculatingServer
from tests.waiting import until
from utils.errors import UsageError
from utils.evals import lm_eval_run

Files = list[str]


@pytest.fixture
def lm_eval(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Files], None]:
    """Replace lm-eval: it ends with a status and leaves these files under its output folder."""

    def install(status: int, files: Files) -> None:
        def run(config: Path, output: Path, log: Path, deadline_s: float) -> int:
            log.write_text("line 1\nTraceback: out of luck\n")
            for name in files:
                path = output / "HuggingFaceTB__SmolLM2" / name
                path.parent.mkdir(exist_ok=True)
                path.write_text("{}")
            return status

        monkeypatch.setattr(lm_eval_run, "_run_lm_eval", run)

    return install


def run(base_url: str, results: Path, *more: str) -> int:
    return lm_eval_run.main(
        [
            *("--base-url", base_url, "--model", MODEL, "--model-prefix", "smollm2"),
            *("--thinking", "off", "--concurrency", "8", "--result-dir", str(results), *more),
        ]
    )


GOOD = ["results_2026-12-01T10.json", "samples_arithmetic_2026-12-01T10.jsonl"]


def test_one_results_file_gets_the_points_name(
    lm_eval: Callable[[int, Files], None], tmp_path: Path
) -> None:
    lm_eval(0, GOOD)
    with SpeculatingServer().running() as server:
        assert run(server.base_url, tmp_path) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "results_arithmetic_conc8.json",
        "samples_arithmetic_conc8.jsonl",
        "lm_eval_arithmetic_conc8.log",
        "lm_eval_arithmetic_conc8.config.json",
    }
    config = json.loads((tmp_path / "lm_eval_arithmetic_conc8.config.json").read_text())
    assert config["model_args"]["num_concurrent"] == 8
    assert config["gen_kwargs"] == {"temperature": 0.0, "top_p": 1.0, "max_gen_toks": 24}


@pytest.mark.parametrize(
    ("status", "files", "words"),
    [
        (3, GOOD, "status 3"),
        (0, [], "left 0 files"),
        (0, [*GOOD, "results_2026-12-01T11.json"], "left 2 files"),
        (0, GOOD[:1], "left 0 files samples_arithmetic_"),
    ],
)
def test_anything_else_is_not_measured_and_leaves_no_result(
    lm_eval: Callable[[int, Files], None],
    tmp_path: Path,
    status: int,
    files: Files,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lm_eval(status, files)
    with SpeculatingServer().running() as server:
        assert run(server.base_url, tmp_path) == 3
    said = capsys.readouterr().err
    assert words in said
    assert "out of luck" in said
    assert not (tmp_path / "results_arithmetic_conc8.json").exists()


def test_a_failed_task_does_not_stop_the_next(
    lm_eval: Callable[[int, Files], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lm_eval(0, GOOD)
    with SpeculatingServer().running() as server:
        assert run(server.base_url, tmp_path, "--task", "gsm8k", "--task", "arithmetic") == 3
    assert "gsm8k conc=8" in capsys.readouterr().err
    assert (tmp_path / "results_arithmetic_conc8.json").exists()


def test_a_server_that_cannot_generate_is_found_before_lm_eval_starts(
    lm_eval: Callable[[int, Files], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lm_eval(0, GOOD)
    with SpeculatingServer(faults=("generation_500",)).running() as server:
        assert run(server.base_url, tmp_path) == 3
    assert "500" in capsys.readouterr().err
    assert run("http://127.0.0.1:9", tmp_path) == 3
    assert list(tmp_path.glob("results*")) == []


def test_a_gone_engine_is_named(
    lm_eval: Callable[[int, Files], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lm_eval(0, GOOD)
    with SpeculatingServer().running() as server:
        assert run(server.base_url, tmp_path, "--server-pid", "999999999") == 3
    assert "is gone" in capsys.readouterr().err


def test_a_task_without_a_budget_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no budget for task 'arithmetic' with thinking on"):
        lm_eval_run.token_budget("arithmetic", "on")


def test_terminating_the_driver_ends_lm_eval(tmp_path: Path) -> None:
    """A stand-in lm_eval that sleeps: TERM to the driver must not leave it behind."""
    package = tmp_path / "site" / "lm_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    marker = tmp_path / "pid"
    (package / "__main__.py").write_text(
        f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )
    code = (
        "import os, sys; from pathlib import Path; from utils.evals import lm_eval_run\n"
        f"lm_eval_run.TASKS = Path({str(tmp_path / 'site')!r})\n"
        f"lm_eval_run._run_lm_eval(Path('c'), Path('o'), Path({str(tmp_path / 'log')!r}), 60.0)"
    )
    driver = subprocess.Popen([sys.executable, "-c", code])
    until(lambda: marker.exists() and marker.read_text())
    pid = int(marker.read_text())
    driver.terminate()
    assert driver.wait(10) == 143
    assert not Path(f"/proc/{pid}").exists()
