"""`speedbench prepare` on made-up data: from a hub on 127.0.0.1, or from a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.hub import Hub
from tests.fakes.speedbench_upstream import EACH, REVISIONS, Upstream, made_up_rows
from tests.waiting import until
from utils import records
from utils.errors import NotMeasured, UsageError
from utils.evals import speedbench, speedbench_prepare, speedbench_source
from utils.evals.prompt_files import PLACEHOLDER, read_prompts

TOKEN = "hf_madeUpSecret"
ROOT = Path(__file__).parents[2]
CODING = ("--config", "qualitative", "--category", "coding")


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    made = Upstream(tmp_path / "upstream")
    pin(made, monkeypatch)
    for name in (*speedbench_source.SECRETS, "HF_ENDPOINT", "HF_HUB_OFFLINE", "SPEEDBENCH_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no_saved_token"))
    monkeypatch.setattr(speedbench_source, "BACKOFF_S", 0.0)
    monkeypatch.setattr(
        speedbench_prepare, "CONFIGS", {"qualitative": dict.fromkeys(("coding", "math"), EACH)}
    )
    return made


def pin(made: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in made.pins().items():
        monkeypatch.setattr(speedbench_source, name, value)


@pytest.fixture
def hub(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub(upstream.folder, REVISIONS).running() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setattr(speedbench_source, "SCRIPT_URL", f"{running.url}/raw/prepare.py")
        yield running


@pytest.fixture
def folder(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(speedbench_source.SOURCE_DIR, str(upstream.folder))
    return upstream.folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def prepare(out: Path, *arguments: str) -> int:
    return speedbench.main(["prepare", *(arguments or CODING), "--output-dir", str(out)])


def published(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir() if "qualitative" in path.name)


def start(upstream: Upstream, out: Path, **env: str) -> subprocess.Popen[str]:
    """The command as a process, with pins that describe made-up data."""
    pins = "; ".join(f"source.{name} = {value!r}" for name, value in upstream.pins().items())
    code = (
        f"from utils import errors; from utils.evals import speedbench, speedbench_source as source"
        f"; {pins}; raise SystemExit(errors.run(speedbench.main))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, "prepare", *CODING, "--output-dir", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_one_category_from_the_hub(hub: Hub, out: Path) -> None:
    hub.newest = dict.fromkeys((speedbench_source.DATASET, "made/up"), "f" * 40)
    hub.denied["cais/hle"] = 403  # a math row wants it, no coding row does
    assert prepare(out) == 0
    path = out / "qualitative-coding.jsonl"
    found = read_prompts(path, "coding", EACH)
    texts = [prompt.messages[0]["content"] for prompt in found.prompts]
    assert texts[:3] == ["made/up text 0", "made/unpinned text 1", "from a URL"]
    assert texts[3] == "coding question 3\u2028"
    assert (found.dataset, found.proxy) == ("speed-bench", False)
    assert found.revision == speedbench_source.REVISION
    manifest = records.read_json(out / "qualitative-coding.manifest.json")
    assert (manifest["rows"], manifest["category"]) == (EACH, "coding")
    assert manifest["script"]["sha256"] == speedbench_source.SCRIPT_SHA256
    read = {(source["name"], source["revision"]) for source in manifest["sources"]}
    assert read == {item for item in REVISIONS.items() if item[0] != "cais/hle"}
    assert all(source["files"] for source in manifest["sources"])
    assert {"datasets", "tiktoken", "python"} <= manifest["tools"].keys()
    hidden = {path.name for path in out.iterdir() if path.name.startswith(".")}
    assert hidden == {".prepare.lock"}  # downloads and work are gone
    assert not [line for line in hub.asked if "hle" in line]


def test_every_category(hub: Hub, out: Path) -> None:
    assert prepare(out, "--config", "qualitative") == 0
    for category in ("coding", "math"):
        assert len(read_prompts(out / "qualitative.jsonl", category).prompts) == EACH
    assert [line for line in hub.asked if "hle/auth-check" in line]


def test_from_a_folder_without_any_network(
    folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(speedbench_source, "SCRIPT_URL", "http://127.0.0.1:9/prepare.py")
    assert prepare(out) == 0
    files = records.read_json(out / "qualitative-coding.manifest.json")["sources"][0]["files"]
    assert list(files) == ["nvidia/SPEED-Bench/qualitative/test.jsonl"]
    assert list(files.values()) == [speedbench_source.DATA_SHA256["qualitative"]]


def test_the_second_call_is_instant_and_offline(
    upstream: Upstream, folder: Path, out: Path
) -> None:
    assert prepare(out) == 0
    written = (out / "qualitative-coding.jsonl").stat().st_mtime_ns
    offline = {
        speedbench_source.SOURCE_DIR: "",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }
    again = start(upstream, out, **offline, PYTHONPROFILEIMPORTTIME="1")
    lines = again.communicate()[1].splitlines()
    assert again.returncode == 0
    assert all(line.startswith("import time:") for line in lines)
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert "argparse" in imported
    assert imported.isdisjoint({"datasets", "lm_eval", "numpy", "pandas", "pyarrow"})
    assert (out / "qualitative-coding.jsonl").stat().st_mtime_ns == written


def test_another_script_is_not_run(hub: Hub, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speedbench_source, "SCRIPT_SHA256", "0" * 64)
    monkeypatch.setattr(speedbench_source, "drive", lambda *_: pytest.fail("it was run"))
    with pytest.raises(UsageError, match=r"is not the pinned 0000.*it was not run"):
        prepare(out)


def test_another_script_in_a_folder_is_not_run(folder: Path, out: Path) -> None:
    (folder / "prepare.py").write_text("print('anything')")
    with pytest.raises(UsageError, match=r"prepare\.py: sha256 .* it was not run"):
        prepare(out)


def test_a_truncated_script_is_tried_again_then_named(hub: Hub, out: Path) -> None:
    hub.truncated.add("prepare.py")
    with pytest.raises(NotMeasured, match=r"IncompleteRead.*set SPEEDBENCH_SOURCE_DIR"):
        prepare(out)
    assert hub.asked == ["GET /raw/prepare.py"] * speedbench_source.TRIES


def test_truncated_data_is_named(hub: Hub, out: Path) -> None:
    hub.truncated.add("test.jsonl")
    with pytest.raises(NotMeasured, match=r"status 1: .*peer closed connection"):
        prepare(out)
    assert published(out) == []


def test_a_missing_script_is_not_asked_for_again(
    hub: Hub, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speedbench_source, "SCRIPT_URL", f"{hub.url}/none")
    with pytest.raises(NotMeasured, match="HTTPError: 404"):
        prepare(out)
    assert hub.asked == ["GET /none"]


def test_an_endless_script_is_cut(hub: Hub, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speedbench_source, "SCRIPT_MAX_BYTES", 100)
    with pytest.raises(NotMeasured, match="longer than 100 bytes"):
        prepare(out)


def test_no_network_for_the_script(
    upstream: Upstream, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speedbench_source, "SCRIPT_URL", "http://127.0.0.1:9/prepare.py")
    with pytest.raises(NotMeasured, match=r"ConnectionError.*set SPEEDBENCH_SOURCE_DIR"):
        prepare(out)


@pytest.mark.parametrize(
    ("status", "token", "remedy"),
    [
        (401, None, "HF_TOKEN is not set"),
        (401, TOKEN, "does not accept HF_TOKEN"),
        (403, TOKEN, "accept its terms"),
    ],
)
def test_no_access_is_found_before_anything_is_fetched(
    status: int,
    token: str | None,
    remedy: str,
    hub: Hub,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub.denied["cais/hle"] = status
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(UsageError, match=rf"HTTP {status}.*{remedy}") as caught:
        prepare(out, "--config", "qualitative", "--category", "math")
    log = (out / "prepare.log").read_text()
    assert "may cais/hle be read?" in log
    assert TOKEN not in log + str(caught.value) + "".join(capsys.readouterr())
    assert hub.tokens == {None, token and f"Bearer {token}"}
    assert not [line for line in hub.asked if "made/" in line]


def test_no_access_to_a_source_that_was_not_known_to_be_gated(
    hub: Hub, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.denied["made/up"] = 403
    with pytest.raises(UsageError, match=r"made/up' is a gated .*accept its terms"):
        prepare(out)


def test_no_access_to_the_data_set_itself(hub: Hub, out: Path) -> None:
    hub.denied[speedbench_source.DATASET] = 401
    with pytest.raises(UsageError, match=r"SPEED-Bench' is a gated.*HF_TOKEN is not set"):
        prepare(out)


def test_a_token_that_the_script_prints_is_not_shown(
    folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("FAKE_SCRIPT_SAYS", f"IndexError: {TOKEN}")
    with pytest.raises(NotMeasured, match=r"status 1: IndexError: \*\*\*; see") as caught:
        prepare(out)
    assert TOKEN not in str(caught.value) + (out / "prepare.log").read_text()


def test_other_data_than_the_pinned_is_refused(
    hub: Hub, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speedbench_source, "DATA_SHA256", {"qualitative": "0" * 64})
    with pytest.raises(UsageError, match=r"is not the pinned file: want sha256 0000"):
        prepare(out)
    assert published(out) == []


def change(rows: list[dict[str, Any]], index: int, **fields: Any) -> list[dict[str, Any]]:
    return [{**row, **fields} if at == index else row for at, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (made_up_rows()[1:], "coding has 79 rows, want 80"),
        (change(made_up_rows(), 3, category="other"), "coding has 79 rows, want 80"),
        (
            change(made_up_rows(), 5, turns=[PLACEHOLDER], source="nobody/knows"),
            "1 rows with a placeholder for text: coding-5",
        ),
        (
            change(made_up_rows(), 5, turns=["x", f"{PLACEHOLDER}\n\n{{question}}"]),
            "1 rows with a placeholder for text: coding-5",
        ),
        (
            change(made_up_rows(), 5, turns=made_up_rows()[6]["turns"]),
            "2 rows with a prompt that another row has too: coding-5, coding-6",
        ),
        (change(made_up_rows(), 5, question_id="coding-6"), "an id that another row has too"),
        (change(made_up_rows(), 5, turns=["\n", "x"]), "1 rows with an empty prompt: coding-5"),
    ],
)
def test_what_the_script_leaves_undone_is_refused(
    rows: list[dict[str, Any]],
    message: str,
    upstream: Upstream,
    folder: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upstream.rows(rows)
    pin(upstream, monkeypatch)
    with pytest.raises(UsageError, match=message):
        prepare(out)
    assert published(out) == []


def test_a_row_too_many_is_refused_by_its_category(
    upstream: Upstream, folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.rows([*made_up_rows(), {**made_up_rows()[0], "category": "x", "question_id": "y"}])
    pin(upstream, monkeypatch)
    with pytest.raises(UsageError, match="x has 1 rows, want 0"):
        prepare(out, "--config", "qualitative")


def test_a_folder_of_another_commit_is_refused(folder: Path, out: Path) -> None:
    note = folder / "made/up/.cache/huggingface/download/test.jsonl.metadata"
    note.write_text(f"{'d' * 40}\n")
    with pytest.raises(UsageError, match=r"holds d+, not made/up at a+: hf download made/up .*a+"):
        prepare(out)


@pytest.mark.parametrize("name", ["made/up/extra.jsonl", "prepare.py"])
def test_a_file_that_the_folder_lacks_is_named(name: str, folder: Path, out: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(UsageError, match=rf"SPEEDBENCH_SOURCE_DIR.*{name}"):
        prepare(out)


def test_no_source_folder(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(speedbench_source.SOURCE_DIR, "/none")
    with pytest.raises(UsageError, match="SPEEDBENCH_SOURCE_DIR=/none is no folder"):
        prepare(out)


def test_killed_half_way_it_starts_again(upstream: Upstream, folder: Path, out: Path) -> None:
    pids = out.parent / "pids"
    slow = {"FAKE_SCRIPT_WAIT_S": "60", "FAKE_SCRIPT_STARTED": str(pids)}
    killed = start(upstream, out, **slow)
    until(lambda: pids.exists() and pids.read_text())
    killed.send_signal(signal.SIGKILL)
    killed.wait(5)
    script = Path("/proc", pids.read_text().strip())
    until(lambda: not (script / "fd").exists() or not os.listdir(script / "fd"), 7)
    assert list(out.glob(".work-*/qualitative.jsonl"))  # a half, and nothing takes it for a whole
    assert published(out) == []
    again = start(upstream, out)
    assert again.wait(60) == 0, again.communicate()[1]
    assert published(out) == ["qualitative-coding.jsonl", "qualitative-coding.manifest.json"]
    assert list(out.glob(".work-*")) == []


def test_of_two_at_once_one_prepares(upstream: Upstream, folder: Path, out: Path) -> None:
    pids = out.parent / "pids"
    slow = {"FAKE_SCRIPT_WAIT_S": "1.5", "FAKE_SCRIPT_STARTED": str(pids)}
    first = start(upstream, out, **slow)
    until(lambda: pids.exists() and pids.read_text())
    second = start(upstream, out, **slow)
    said = [process.communicate(timeout=60) for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert said[0][0] == said[1][0] == f"{out / 'qualitative-coding.jsonl'}\n"
    assert "another preparation is at work; waiting" in said[1][1]
    assert len(pids.read_text().split()) == 1


def test_waiting_for_another_ends(folder: Path, out: Path) -> None:
    out.mkdir()
    with (
        speedbench_prepare._alone(out, time.monotonic()),
        pytest.raises(NotMeasured, match="another preparation still holds it"),
    ):
        prepare(out, *CODING, "--timeout-s", "0.3")


def test_a_prepared_set_waits_for_nobody(folder: Path, out: Path) -> None:
    assert prepare(out) == 0
    with speedbench_prepare._alone(out, time.monotonic()):
        assert prepare(out, *CODING, "--timeout-s", "0.3") == 0


def test_a_script_that_hangs_is_ended(
    folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SCRIPT_WAIT_S", "60")
    monkeypatch.setenv("FAKE_SCRIPT_STARTED", str(out.parent / "pids"))
    started = time.monotonic()
    with pytest.raises(NotMeasured, match=r"not prepared within \d+ s; see .*--timeout-s"):
        prepare(out, *CODING, "--timeout-s", "3")
    assert time.monotonic() - started < 10


def test_a_set_of_other_pins_is_prepared_again(folder: Path, out: Path) -> None:
    assert prepare(out) == 0
    manifest = out / "qualitative-coding.manifest.json"
    today = records.read_json(manifest)
    for key, value in (
        ("revision", "e" * 40),
        ("script", {**today["script"], "sha256": "0" * 64}),
        ("schema", "prompt_manifest/1"),
    ):
        manifest.write_text(json.dumps({**today, key: value}))
        assert prepare(out) == 0
        assert records.read_json(manifest)[key] == today[key]


def test_an_edited_set_is_refused(folder: Path, out: Path) -> None:
    assert prepare(out) == 0
    with (out / "qualitative-coding.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(UsageError, match="delete both and prepare again"):
        prepare(out)


def test_a_file_without_its_manifest_is_not_taken(folder: Path, out: Path) -> None:
    out.mkdir()
    (out / "qualitative-coding.jsonl").write_text("{}\n")
    assert prepare(out) == 0
    assert len(read_prompts(out / "qualitative-coding.jsonl", "coding").prompts) == EACH


def test_a_manifest_without_its_file_is_not_taken(folder: Path, out: Path) -> None:
    assert prepare(out) == 0
    (out / "qualitative-coding.jsonl").unlink()
    assert prepare(out) == 0
    assert (out / "qualitative-coding.jsonl").exists()


def test_throughput_drops_rows_only_after_their_sources_are_resolved(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drive(job: speedbench_source.Job, arguments: list[str]) -> None:
        asked.append("--category" in arguments)
        (job.work / "sources.json").write_text("{}")

    asked: list[bool] = []
    monkeypatch.setattr(speedbench_source, "drive", drive)
    job = speedbench_source.Job(tmp_path, tmp_path, time.monotonic() + 60)
    speedbench_source.materialise(job, "throughput_1k", "mixed")
    speedbench_source.materialise(job, "qualitative", "coding")
    assert asked == [False, True]


def test_what_a_model_wants(folder: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare(out, "--model-prefix", "smollm2") == 0
    assert prepare(out, "--model-prefix", "dsv4") == 0
    said = capsys.readouterr().out.split()
    assert said == [str(out / "humaneval-proxy.jsonl"), str(out / "qualitative-coding.jsonl")]


def test_where_it_goes_unless_told(
    folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEEDBENCH_DIR", str(out))
    assert speedbench.main(["prepare", "--model-prefix", "smollm2"]) == 0
    assert (out / "humaneval-proxy.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--config", "qualitative", "--category", "codign"), "did you mean coding"),
        (("--model-prefix", "dsv4", "--category", "math"), "--category goes with --config"),
        (("--model-prefix", "none"), "no model prefix 'none'"),
    ],
)
def test_bad_usage(arguments: tuple[str, ...], message: str, upstream: Upstream, out: Path) -> None:
    with pytest.raises(UsageError, match=message):
        prepare(out, *arguments)


def test_a_folder_that_cannot_be_written(folder: Path, out: Path) -> None:
    out.write_text("a file")
    with pytest.raises(UsageError, match="must be writable"):
        prepare(out)


def test_tokens_without_the_vocabulary(
    folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with pytest.raises(NotMeasured, match=r"ended with status 1: requests.*ProxyError"):
        prepare(out, *CODING, "--count-tokens")


def test_an_environment_without_datasets(
    folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    monkeypatch.setattr(speedbench_source, "_python", lambda: bare / "bin" / "python")
    with pytest.raises(UsageError, match=r"lacks datasets, .*: run `make setup`"):
        prepare(out)
