"""The commands that measure or clear away, as a shell runs them, on the fake engine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.decode import support
from tests.decode.test_restarts import start, story
from tests.decode_torch import files
from utils.decode_eval import history, jobs, keeping, lease


def configured(folder: Path, modes: dict[str, Any] | None = None, **fields: Any) -> Path:
    """A YAML file (JSON is YAML) as a training's configuration has it."""
    path = folder / "train.yaml"
    path.write_text(json.dumps({"lr": 1e-4, "decode_eval": support.block(folder, modes, **fields)}))
    return path


def checkpoint(folder: Path, number: int) -> Path:
    """A checkpoint folder with one tensor."""
    return support.write_weights(folder / f"checkpoint-{number}", bytes([number]))


def command(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "utils.decode_eval", *map(str, words)],
        cwd=support.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_run_measures_a_checkpoint_and_what_was_cut_off(tmp_path: Path) -> None:
    config = configured(tmp_path, {"once": str(tmp_path / "once"), "die_at": 3})
    weights = checkpoint(tmp_path, 30)
    first = command("run", config, "--checkpoint", weights)
    assert first.returncode == 3
    assert "step 30 is not measured, engine_died" in first.stdout
    second = command("run", config, "--checkpoint", weights)
    assert (second.returncode, second.stderr) == (0, "")
    assert "step 30: tau_real " in second.stdout
    output = tmp_path / "decode_eval"
    assert story(output) == [(30, 1, "engine_died"), (30, 2, "measured")]
    assert (weights / "model.safetensors").exists()  # a checkpoint of the user's stays
    nothing = command("run", config)
    assert (nothing.returncode, "no eval was cut off" in nothing.stderr) == (2, True)


def test_run_interrupted_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    config = configured(tmp_path, {"never_ready": True, "once": str(tmp_path / "once")})
    words = [sys.executable, "-m", "utils.decode_eval", "run", str(config), "--checkpoint"]
    running = subprocess.Popen([*words, str(checkpoint(tmp_path, 5))], cwd=support.ROOT)
    support.until((tmp_path / "once").exists)
    running.send_signal(signal.SIGTERM)
    assert running.wait(10) == 130
    assert support.engines(tmp_path) == []
    assert command("run", config).returncode == 0
    assert story(tmp_path / "decode_eval") == [(5, 1, "cut_off"), (5, 2, "measured")]


def test_watch_measures_each_checkpoint_once(tmp_path: Path) -> None:
    config, folder = configured(tmp_path), tmp_path / "checkpoints"
    for number in (20, 100):
        checkpoint(folder, number)
    (folder / "checkpoint-120").mkdir()  # still being written
    (folder / "runs").mkdir()
    words = ("watch", config, folder, "--once", "--poll-s", 0.1, "--settle-s", 0)
    assert command(*words).returncode == 0
    assert story(tmp_path / "decode_eval") == [(20, 1, "measured"), (100, 1, "measured")]
    assert command(*words).returncode == 0
    assert len(story(tmp_path / "decode_eval")) == 2
    assert command("watch", config, tmp_path / "nowhere").returncode == 2


def test_doctor_says_what_is_wrong(tmp_path: Path) -> None:
    good = command("doctor", configured(tmp_path))
    assert (good.returncode, good.stderr) == (0, "")
    assert "ok    prompts: default: 6 prompts" in good.stdout
    bad = command("doctor", configured(tmp_path, command=["no-such-engine"], shuffle_seed=1))
    assert bad.returncode == 2
    assert "wrong engine: no-such-engine is not on the engine's PATH" in bad.stdout
    assert "wrong prompts: " in bad.stdout and "frozen from other settings" in bad.stdout
    off = command("doctor", configured(tmp_path, every_steps=0))
    assert (off.returncode, "decode_eval is off" in off.stderr) == (2, True)


def test_strict_preflight_stops_the_start_and_warn_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from utils import decode_eval
    from utils.errors import UsageError

    broken = {"command": ["no-such-engine"]}
    with pytest.raises(UsageError, match="preflight, engine: no-such-engine is not on"):
        decode_eval.session(support.config(tmp_path, **broken), export=support.export)
    decode_eval.session(support.config(tmp_path, **broken, preflight="warn"), export=support.export)
    assert "no-such-engine is not on" in caplog.text


def test_reap_ends_what_a_dead_training_left(tmp_path: Path) -> None:
    fields = {"on_trainer_exit": "finish"}
    block = support.block(tmp_path, {"never_ready": True, "ignore_term": True}, **fields)
    (tmp_path / "block.json").write_text(json.dumps(block))
    output = Path(block["output_dir"])
    trainer = start(tmp_path, 0, 1, "hold")
    support.until(lambda: lease.path(output).exists() and support.engines(tmp_path))
    alive = command("reap", output)
    assert (alive.returncode, "which lives; --force" in alive.stderr) == (3, True)
    trainer.kill()
    trainer.wait(5)
    done = command("reap", output)
    assert done.returncode == 0, done.stderr
    assert "ended the eval of step 0" in done.stdout
    assert "removed the weights of step 0" in done.stdout
    assert support.engines(tmp_path) == []
    assert "no eval runs" in command("reap", output).stdout


def test_several_sets_and_endpoints_and_the_best_snapshot(tmp_path: Path) -> None:
    from utils.decode_eval import DecodeEvalRunner

    data = tmp_path / "rows.jsonl"
    rows = [{"text": f"def f{i}(", "ids": [i, 7]} for i in range(9)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    raw = {"input_data": str(data), "endpoint": "completions", "num_prompts": 3}
    sets = [
        {"name": "chat"},
        {"name": "raw", "prompt_column": "text", **raw},
        {"name": "ids", "token_ids_column": "ids", "max_new_tokens": 20, **raw},
    ]
    runner = DecodeEvalRunner(support.config(tmp_path, prompt_sets=sets), support.export)
    for step, chance in ((0, b"0.2"), (10, b"0.8")):
        assert runner.maybe_launch(step, b"accept=" + chance)
        assert runner.wait(30)
    found = runner.collect()
    assert [row["outcome"] for row in found] == ["measured"] * 2
    first = found[0]
    assert {s["name"]: s["completed"] for s in first["sets"]} == {"chat": 6, "raw": 3, "ids": 3}
    assert first["verify_steps"] == sum(s["verify_steps"] for s in first["sets"])
    assert first["sets"][2]["output_tokens"] == 60
    assert len({s["requests_sha256"] for row in found for s in row["sets"]}) == 3
    output = runner.config.folder
    assert (output / keeping.BEST).readlink() == Path("step_10")
    assert [step for step, folder in jobs.steps(output) if jobs.has_weights(folder)] == [10]
    record = output / "step_10" / "al_raw.json"
    recheck = [sys.executable, "-m", "utils.evals.speedbench_al", "recheck", str(record)]
    done = subprocess.run(recheck, cwd=support.ROOT, capture_output=True, text=True, check=False)
    assert "BROKEN" not in done.stdout and "no_golden" in done.stdout
    assert history.measured(history.read(output)) == found


@pytest.mark.parametrize("engine", ["vllm", "openai"])
def test_a_server_that_runs_already(engine: str, tmp_path: Path) -> None:
    """By its counters, or by its streams alone; nothing is started or stopped."""
    from tests.fakes.speculating import MODEL, SpeculatingServer
    from utils.decode_eval import DecodeEvalRunner

    dialect = {"vllm": "vllm-0.29", "openai": "openai"}[engine]
    with SpeculatingServer(dialect=dialect, n=3, accept=0.6).running() as server:
        fields: dict[str, Any] = {
            "base_url": server.base_url,
            "target_model": MODEL,
            "engine": engine,
        }
        sent = {"sampling": {"top_k": 20}, "chat_template_kwargs": {"enable_thinking": False}}
        fields |= {"command": [], "cuda_visible_devices": None, **sent}
        config = support.config(tmp_path, **fields)
        runner = DecodeEvalRunner(config, support.export)
        assert runner.maybe_launch(0, b"weights")
        assert runner.wait(20)
        (row,) = runner.collect()
        assert row["outcome"] == "measured", row
        found = (row["accepted_tokens"], row["verify_steps"])
        truth = (server.accepted, server.steps)
        body = server.bodies[-1]
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.0, 1.0, 20)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    if engine == "vllm":
        assert found == truth
    else:  # what each request's last step lost at its end can't be seen
        assert found[1] == truth[1] and truth[0] - 3 * 6 <= found[0] <= truth[0]


VLLM = """\
#!{python}
import json, os, sys
word = lambda name: sys.argv[sys.argv.index(name) + 1]
told = json.loads(word("--speculative-config"))
own = ["--port", word("--port"), "--name", word("--served-model-name")]
own += ["--draft", told["model"], "--n", str(told["num_speculative_tokens"])]
os.execv({python!r}, [{python!r}, {engine!r}, *own])
"""


def test_vllm_gets_what_the_converter_made(tmp_path: Path) -> None:
    """From a head's folder to the engine that engine_python names, and a head that is refused."""
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    vllm = folder / "vllm"
    vllm.write_text(VLLM.format(python=sys.executable, engine=str(support.ENGINE)))
    vllm.chmod(0o755)
    fields = {"command": [], "engine_python": str(folder / "python"), "method": None}
    config = configured(tmp_path, **fields)
    head = files.write(tmp_path / "head-7", files.EAGLE3, files.eagle3(), files.D2T, files.T2D)
    done = command("run", config, "--checkpoint", head)
    assert done.returncode == 0, done.stdout
    step = tmp_path / "decode_eval" / "step_7"
    (row,) = history.read(tmp_path / "decode_eval")
    assert row["engine"]["method"] == "eagle3"
    record = json.loads((step / "al_default.json").read_text())
    assert record["speculation"]["draft_model"] == str(step / jobs.SERVED)
    assert not (step / jobs.SERVED).exists()  # a copy for the engine; the weights themselves stay
    assert jobs.has_weights(step)
    told = command("doctor", config, "--draft", head).stdout
    assert 'ok    draft: eagle3: --speculative-config {"method": "eagle3"' in told
    (tmp_path / "decode_eval" / "step_8").mkdir()
    (tmp_path / "decode_eval" / "step_8" / jobs.SERVED).write_text("in the way")
    blocked = command("run", config, "--checkpoint", head, "--step", "8")
    assert blocked.returncode == 3
    assert "step 8 is not measured, measurement_failed: at phase convert: " in blocked.stdout
    strange = files.write(tmp_path / "odd-8", {"architectures": ["Medusa"]}, {"w": (1,)})
    refused = command("run", config, "--checkpoint", strange)
    assert refused.returncode == 3
    assert "unusable_configuration" in refused.stdout and "no converter" in refused.stdout
