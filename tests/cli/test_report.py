"""`python3 -m utils.report`: every surface says the same verdicts; comparison and its statuses."""

from __future__ import annotations

import html
import io
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import junitparser
import pytest

from tests import report_dirs
from utils import errors, records
from utils.evals import validate_scores
from utils.report.__main__ import main
from utils.verdicts import Outcome, Verdict

ROOT = Path(__file__).parents[2]
SURFACES = ("terminal", "annotations", "junit", "summary", "comment", "page")


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_dirs.goldens(tmp_path_factory.mktemp("g") / "golden")


@pytest.fixture
def report(golden: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run(*words: Any) -> tuple[int, str, str]:
        output, complaints = io.StringIO(), io.StringIO()
        arguments = [*map(str, words), "--golden", str(golden)]
        with redirect_stdout(output), redirect_stderr(complaints):
            status = errors.run(lambda: main(arguments))
        return status, output.getvalue(), complaints.getvalue()

    return run


STATUS = {"green": 0, "red": 1, "missing": 3, "inconclusive": 3, "nothing": 3, "few": 1}


def told(text: str) -> str:
    """Text with its white space made one, so that the layout of a surface doesn't matter."""
    return " ".join(text.split())


def surfaces(folder: Path, output: str) -> dict[str, str]:
    """What each surface says, as plain text."""
    page = re.sub(r"<(script|style)>.*?</\1>", "", (folder / "report.html").read_text(), flags=re.S)
    unmarked = re.compile(r"\\([\\`*_\[\]|~$])")

    def plain(name: str) -> str:
        text = unmarked.sub(r"\1", (folder / name).read_text())
        return told(html.unescape(text).replace("\u200b", ""))

    commands = [line for line in output.splitlines() if line.startswith("::")]
    decoded = "\n".join(commands).replace("%3A", ":").replace("%2C", ",").replace("%25", "%")
    cases = junitparser.JUnitXml.fromfile(str(folder / "junit.xml"))
    lines = [f"{c.classname} {c.name} {r.message}" for s in cases for c in s for r in c.result]
    return {
        "terminal": told("\n".join(line for line in output.splitlines() if line[:2] != "::")),
        "annotations": told(decoded),
        "junit": told("\n".join(lines)),
        "summary": plain("summary.md"),
        "comment": plain("comment.md"),
        "page": told(html.unescape(re.sub(r"<[^>]*>", "", page))),
    }


def judged(folder: Path, golden: Path) -> list[tuple[str, Verdict]]:
    """What the gate says of every job, with the job's name where there are several."""
    options = validate_scores.Options(golden=golden)
    jobs = sorted(path.parent for path in folder.rglob("plan.json")) or [folder]
    return [
        ("" if job == folder else f"{job.name}: ", verdict)
        for job in jobs
        for verdict in validate_scores.validate(job, options)
    ]


@pytest.mark.parametrize("name", STATUS)
def test_every_surface_says_what_the_gate_says(
    name: str, tmp_path: Path, golden: Path, report: Callable[..., Any]
) -> None:
    folder, gate_status = tmp_path / "run", STATUS[name]
    report_dirs.RUNS[name](folder)
    verdicts = judged(folder, golden)
    status, output, _ = report(folder, "--annotations")
    assert status == 0  # rendering is no verdict
    said = surfaces(folder, output)
    summary = validate_scores.summary([verdict for _, verdict in verdicts])
    headline = {0: "PASS", 1: "FAIL", 3: "NOT MEASURED"}[gate_status]
    for surface in ("terminal", "summary", "comment", "page"):
        assert summary in said[surface], surface
        assert headline in said[surface], surface
    red = [(job, verdict) for job, verdict in verdicts if verdict.outcome is not Outcome.PASS]
    assert bool(red) is (gate_status != 0)
    for job, verdict in red[:9]:
        for surface in SURFACES:
            assert told(verdict.why()) in said[surface], surface
            assert verdict.cell in said[surface], surface
            if surface in ("terminal", "annotations", "summary", "comment"):
                assert f"{job}{verdict.cell}" in said[surface], surface


@pytest.mark.parametrize("name", STATUS)
def test_surfaces_count_alike(
    name: str, tmp_path: Path, golden: Path, report: Callable[..., Any]
) -> None:
    folder = tmp_path / "run"
    report_dirs.RUNS[name](folder)
    count = dict.fromkeys(Outcome, 0)
    for _, verdict in judged(folder, golden):
        count[verdict.outcome] += 1
    report(folder)
    page = (folder / "report.html").read_text()
    summary = (folder / "summary.md").read_text()
    document = junitparser.JUnitXml.fromfile(str(folder / "junit.xml"))
    marks = {"pass": "✅ pass", "fail": "❌ fail", "not_measured": "⚠️ not measured"}
    marks["inconclusive"] = "❔ inconclusive"
    for outcome, number in count.items():
        assert page.count(f'<tr data-outcome="{outcome.value}">') == number
        assert summary.count(f"| {marks[outcome.value]} |") == number
    assert document.tests == sum(count.values())
    assert document.failures == count[Outcome.FAIL]
    assert document.errors == count[Outcome.NOT_MEASURED] + count[Outcome.INCONCLUSIVE]


def test_hostile_text_stays_text(tmp_path: Path, report: Callable[..., Any]) -> None:
    folder = report_dirs.hostile(tmp_path / "run")
    report(folder, "--annotations")
    page = (folder / "report.html").read_text()
    assert html.escape(report_dirs.HOSTILE, quote=False) in page.replace("&#39;", "'")
    assert page.count("<script") == 1
    for name in ("report.html", "summary.md", "comment.md"):
        assert "<img" not in (folder / name).read_text()


def test_a_page_is_the_same_when_rendered_again(tmp_path: Path, report: Callable[..., Any]) -> None:
    folder = report_dirs.job(tmp_path / "run")
    report(folder)
    first = (folder / "report.html").read_bytes()
    report(folder)
    assert (folder / "report.html").read_bytes() == first


def test_the_page_refers_to_nothing_outside_itself(
    tmp_path: Path, report: Callable[..., Any]
) -> None:
    folder = report_dirs.job(tmp_path / "run")
    report(folder)
    page = (folder / "report.html").read_text()
    links = re.findall(r'(?:href|src|action|xlink:href)="([^"]*)"', page)
    assert links
    assert {link[:1] for link in links if not link.startswith("data:application/gzip;")} == {"#"}
    assert "url(http" not in page
    assert "default-src 'none'" in html.unescape(page)


def test_the_step_summary_is_added_to_in_the_room_that_is_left(
    tmp_path: Path, report: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "step.md"
    file.write_text("x" * 921_000)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    report(report_dirs.job(tmp_path / "run"))
    text = file.read_text()
    assert text.startswith("x" * 921_000)
    assert len(text.encode()) <= 900 * 1024
    assert "left out here" in text


def test_texts_are_written_where_the_page_cannot_be(tmp_path: Path, golden: Path) -> None:
    """As in an engine's container, which has neither Jinja2 nor matplotlib nor rich."""
    folder = report_dirs.job(tmp_path / "run")
    code = (
        "import sys; sys.modules.update(jinja2=None, matplotlib=None, rich=None)\n"
        "import runpy; sys.argv = sys.argv[1:]\n"
        "runpy.run_module('utils.report', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "report", str(folder), "--golden", str(golden)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "which this Python lacks" in done.stderr
    assert {"summary.md", "comment.md", "junit.xml"} <= {path.name for path in folder.iterdir()}
    assert not (folder / "report.html").exists()


# --- comparison


def test_a_run_against_itself_is_no_change(tmp_path: Path, report: Callable[..., Any]) -> None:
    a, b = (report_dirs.job(tmp_path / name) for name in "ab")
    status, output, _ = report("compare", a, b)
    assert status == 0
    assert output.count("within noise") == 2
    assert "noise unknown" in output  # of the speed


def test_a_worse_run_is_red(tmp_path: Path, report: Callable[..., Any]) -> None:
    a = report_dirs.job(tmp_path / "a")
    b = report_dirs.job(tmp_path / "b", positions=(700, 430))
    status, output, _ = report("compare", a, b)
    assert status == 1
    assert "worse" in output


def test_a_run_that_measured_less_is_not_measured(
    tmp_path: Path, report: Callable[..., Any]
) -> None:
    a = report_dirs.job(tmp_path / "a")
    b = report_dirs.job(tmp_path / "b", al=False)
    status, output, _ = report("compare", a, b)
    assert status == 3
    assert "no longer" in output  # measured, in another line of the cell


def test_what_the_gate_does_not_believe_is_not_compared(
    tmp_path: Path, report: Callable[..., Any]
) -> None:
    a = report_dirs.job(tmp_path / "a")
    b = report_dirs.job(tmp_path / "b")
    record, serving = b / "results_speedbench_al_on_mtp2.json", b / "dsv4_serving.json"
    data = records.read_json(record)
    records.write_json(record, {**data, "run": {**data["run"], "run_id": "another"}})
    records.write_json(serving, {**records.read_json(serving), "run_id": "another"})
    status, output, _ = report("compare", a, b)
    assert status == 3
    assert output.count("no longer") == 2


def test_another_protocol_is_refused(tmp_path: Path, report: Callable[..., Any]) -> None:
    a = report_dirs.job(tmp_path / "a")
    b = report_dirs.job(tmp_path / "b", hw="b300")
    status, _, complaint = report("compare", a, b)
    assert status == 2
    assert "hw was b200, is b300" in complaint
    assert report(b, "--baseline", a)[0] == 2
    assert "hw was b200, is b300" in told(html.unescape((b / "report.html").read_text()))


def stored(folder: Path, **changes: Any) -> None:
    for path in folder.glob("*.json"):
        records.write_json(path, {**records.read_json(path), **changes}, "past_run")


def test_the_newest_complete_green_run_of_a_store_is_the_baseline(
    tmp_path: Path, report: Callable[..., Any]
) -> None:
    store = tmp_path / "store"
    jobs = {
        "01-old": {},
        "02-good": {},
        "03-red": {"positions": (500, 300)},
        "04-incomplete": {"al": False},
        "05-elsewhere": {"hw": "b300"},
    }
    for name, changes in jobs.items():
        folder = report_dirs.job(tmp_path / name, run_id=name, **changes)
        status, output, _ = report("store", folder, "--into", tmp_path / "one")
        assert status == 0
        stored(tmp_path / "one", started=f"2026-11-{name[:2]}T10:00:00Z")
        store.mkdir(exist_ok=True)
        shutil.move(output.strip(), store / f"{name}.json")
    run = report_dirs.job(tmp_path / "run", run_id="this")
    status, output, _ = report("compare", store, run)
    assert status == 0
    assert "against 2026-11-02T10:00:00Z (02-good)" in output
    report(run, "--baseline", store)
    assert "02-good" in (run / "report.html").read_text()


def test_a_store_without_a_baseline_says_why(tmp_path: Path, report: Callable[..., Any]) -> None:
    red = report_dirs.job(tmp_path / "red", positions=(500, 300))
    report("store", red, "--into", tmp_path / "store")
    run = report_dirs.job(tmp_path / "run")
    status, _, complaint = report("compare", tmp_path / "store", run)
    assert status == 3
    assert "not complete and green (2 passed, 1 failed)" in complaint
    assert report(run, "--baseline", tmp_path / "store")[0] == 0
    assert "complete and green" in (run / "summary.md").read_text()


def test_a_run_is_never_its_own_baseline(tmp_path: Path, report: Callable[..., Any]) -> None:
    run = report_dirs.job(tmp_path / "run")
    report("store", run, "--into", tmp_path / "store")
    status, _, complaint = report("compare", tmp_path / "store", run)
    assert status == 3
    assert "it is this run" in complaint


def test_storing_twice_keeps_one_file_and_it_is_known(
    tmp_path: Path, report: Callable[..., Any]
) -> None:
    run = report_dirs.job(tmp_path / "run")
    for _ in range(2):
        report("store", run, "--into", tmp_path / "store")
    [path] = (tmp_path / "store").iterdir()
    assert records.schema_problem(records.read_json(path), "past_run") is None


def test_a_store_may_be_an_artifact(tmp_path: Path, report: Callable[..., Any]) -> None:
    report("store", report_dirs.job(tmp_path / "a"), "--into", tmp_path / "store")
    archive = tmp_path / "store.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (tmp_path / "store").iterdir():
            file.write(path, path.name)
    status, output, _ = report("compare", archive, report_dirs.job(tmp_path / "b"))
    assert status == 0
    assert "within noise" in output


def test_an_artifact_that_came_broken_is_refused(
    tmp_path: Path, report: Callable[..., Any]
) -> None:
    archive = tmp_path / "store.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.json", "{}" * 99)
        place = file.getinfo("a.json").header_offset + len(file.getinfo("a.json").FileHeader())
    data = bytearray(archive.read_bytes())
    data[place] = 0xFF  # no kind of block that deflate has
    archive.write_bytes(data)
    status, _, said = report("compare", archive, report_dirs.job(tmp_path / "b"))
    assert (status, "store.zip: can't be read" in said) == (errors.USAGE, True)


@pytest.mark.parametrize(
    ("name", "content"), [("x.json", "{}"), ("x.json", "{"), ("x.zip", "no zip")]
)
def test_what_is_no_past_run_is_refused(
    name: str, content: str, tmp_path: Path, report: Callable[..., Any]
) -> None:
    (tmp_path / name).write_text(content)
    status, _, complaint = report("compare", tmp_path / name, report_dirs.job(tmp_path / "b"))
    assert status == 2
    assert name in complaint


def test_results_of_no_known_run_are_not_stored(tmp_path: Path, report: Callable[..., Any]) -> None:
    folder = report_dirs.job(tmp_path / "a")
    (folder / "plan.json").unlink()
    status, _, complaint = report("store", folder, "--into", tmp_path / "store")
    assert status == 3
    assert "says when it started" in complaint


def test_the_commands_of_the_reviewers_page_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "reading-a-verdict.md").read_text()
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines() if line]
    assert len(commands) == 6
    places = {"DIR": tmp_path / "run", "BEFORE": tmp_path / "before", "STORE": tmp_path / "store"}
    report_dirs.job(places["DIR"])
    report_dirs.job(places["BEFORE"])
    for command in commands:
        words = [str(places.get(word, word)) for word in shlex.split(command)]
        assert words[0] == "python3"
        done = subprocess.run(
            [sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 1, 3), done.stderr
        assert "Traceback" not in done.stderr
