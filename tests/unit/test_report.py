"""Parts of reports: what is cut and how it is said, what is escaped, what is compared."""

from __future__ import annotations

import base64
import gzip
import math
import random
import re
from pathlib import Path
from xml.etree import ElementTree

import junitparser
import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from tests import report_dirs
from utils import records
from utils.errors import UsageError
from utils.evals.validate_scores import Options
from utils.report import (
    board,
    comparison,
    content,
    downloads,
    junit,
    markdown,
    page,
    plots,
    terminal,
    workflow_commands,
)
from utils.report.board import Row
from utils.report.comparison import Judgement
from utils.report.content import Report
from utils.report.lengths import Band, Curve, Length
from utils.verdicts import Outcome, Verdict

HOSTILE = "<script>alert(1)</script> | `code` *bold* @team [x](http://y) \x1b[31m\x00\ud800"


def report_of(*verdicts: Verdict, job: str = "") -> Report:
    rows = board.worst_first([Row(job, verdict) for verdict in verdicts])
    return Report(Path("/results"), 1, "some failed", rows, [])


def failed(number: int = 0, detail: str = "detail") -> Verdict:
    return Verdict(
        Outcome.FAIL, f"gsm8k conc={number}", "score", 0.5, 0.9, reason="below", detail=detail
    )


# --- Markdown


def test_i5_a_long_summary_is_cut_at_a_row_and_says_how_many_are_left_out() -> None:
    report = report_of(*(failed(number, "ü" * 300) for number in range(5000)))
    text = markdown.summary(report)
    assert 890_000 < len(text.encode()) <= markdown.SUMMARY_BYTES
    *_, last = text.rstrip("\n").split("\n")
    shown = text.count("- ❌ fail **gsm8k")
    left_out = 5000 - shown + 5000  # and the whole table
    assert last == f"{left_out} more rows are left out here; report.html has them all."
    assert all(line.endswith("ü" * 300) for line in text.splitlines() if line.startswith("- ❌"))


def test_a_table_that_is_cut_keeps_its_head_and_whole_rows() -> None:
    report = report_of(*(failed(number) for number in range(100)))
    whole = markdown.summary(report)
    start = whole.encode().index(b"| verdict |")
    text = markdown.summary(report, start + 2000)
    rows = [line for line in text.splitlines() if line.startswith("| ❌")]
    assert 0 < len(rows) < 100
    assert all(line.count(" | ") == 5 for line in rows)
    assert text.endswith(
        f"\n{100 - len(rows)} more rows are left out here; report.html has them all.\n"
    )


@pytest.mark.parametrize("limit", range(0, 6000, 97))
def test_no_limit_is_passed(limit: int) -> None:
    report = report_of(*(failed(number, "ü" * 60) for number in range(20)))
    text = markdown.summary(report, limit + markdown.RESERVE)
    assert len(text.encode()) <= limit + markdown.RESERVE


def test_a_comment_fits_and_can_be_found_again() -> None:
    text = markdown.comment(report_of(*(failed(n, "x" * 100) for n in range(2000))))
    assert len(text) <= 65_000
    assert text.startswith(markdown.COMMENT_MARK + "\n## FAIL")


def test_markdown_of_a_hostile_text_is_text() -> None:
    text = markdown.escape(HOSTILE + " a_b _c_ <!-- x")
    assert "<" not in text
    assert text.isprintable()
    assert "@team" not in text
    assert r"\| \`code\` \*bold\*" in text
    assert r"\[x\](http://y)" in text
    assert r"a_b \_c\_" in text


def test_github_reads_a_cut_summary_as_tables_and_no_markup_of_a_log() -> None:
    report = report_of(*(failed(number, HOSTILE) for number in range(50)))
    for limit in (7_000, markdown.SUMMARY_BYTES):
        tokens = MarkdownIt("commonmark").enable("table").parse(markdown.summary(report, limit))
        inner = [token for token in tokens if token.type == "inline"]
        kinds = {child.type for token in inner for child in token.children or ()}
        assert kinds <= {"text", "strong_open", "strong_close", "text_special"}
        assert "html_block" not in {token.type for token in tokens}
        rows = sum(token.type == "tr_open" for token in tokens)
        cells = sum(token.type in ("td_open", "th_open") for token in tokens)
        assert cells == 6 * rows
    assert rows == 51


# --- annotations


def test_annotations_carry_the_line_and_cannot_be_ended_by_it() -> None:
    forged = "50%\n::error::forged\r"
    verdict = Verdict(Outcome.FAIL, forged, "score", 0.5, 0.9, reason="below", detail=forged)
    [line] = workflow_commands.render(report_of(verdict))
    assert line.startswith("::error title=fail%3A 50%25%0A%3A%3Aerror%3A%3Aforged%0D::FAIL ")
    assert line.endswith(r"below: 50%25\n::error::forged\r")


def test_annotations_beyond_what_github_shows_are_counted() -> None:
    unclear = Verdict(Outcome.INCONCLUSIVE, "AL on N=3", "acceptance_length", reason="few")
    lines = list(workflow_commands.render(report_of(unclear, *(failed(n) for n in range(12)))))
    assert [line.partition(" ")[0] for line in lines] == ["::error"] * 10 + ["::warning"]
    assert "3 more" in lines[9]


def test_annotations_of_ten_are_all_shown() -> None:
    lines = list(workflow_commands.render(report_of(*(failed(n) for n in range(10)))))
    assert len(lines) == 10
    assert not any("more" in line for line in lines)


# --- JUnit


def test_junit_counts_and_names_by_cell_and_check(tmp_path: Path) -> None:
    unmeasured = Verdict(Outcome.NOT_MEASURED, "AL on N=3", "acceptance_length", reason="missing")
    good = Verdict(Outcome.PASS, "serving", "requests_completed", 40.0, 40.0, 40.0)
    records.write_text(tmp_path / "j.xml", junit.render({"a": [failed(), good], "b": [unmeasured]}))
    document = junitparser.JUnitXml.fromfile(str(tmp_path / "j.xml"))
    assert (document.tests, document.failures, document.errors) == (3, 1, 1)
    assert [(suite.name, suite.tests) for suite in document] == [("a", 2), ("b", 1)]
    [case] = [case for suite in document for case in suite if case.is_error]
    assert (case.classname, case.name) == ("AL on N=3", "acceptance_length")
    assert case.result[0].message == unmeasured.line()


def test_junit_of_what_xml_cannot_hold_is_readable() -> None:
    verdict = Verdict(Outcome.FAIL, HOSTILE, HOSTILE, reason=HOSTILE, detail=HOSTILE)
    [case] = ElementTree.fromstring(junit.render({"": [verdict]})).iter("testcase")
    [failure] = case
    for said in (*case.attrib.values(), *failure.attrib.values()):
        assert "<script>alert(1)</script>" in said
        assert r"\x1b[31m\x00" in said


# --- terminal


def test_a_terminal_is_not_told_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(report_of(failed(detail=HOSTILE + "[bold]")), Console(width=200))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "[bold]" in shown


# --- comparison


def past(
    value: float | None = 2.27, kind: str = "al", n: int = 2, **changes: object
) -> records.Json:
    rows = [[10 + i % 3, 10] for i in range(30)] if kind == "al" else []
    point = {
        "subject": {"model_prefix": "dsv4", "hw": "b200"},
        "kind": kind,
        "cell": f"AL on N={n}",
        "metric": "acceptance_length",
        "outcome": "pass",
        "value": value,
        "samples": 1319 if kind == "score" else None,
        "rows": rows,
        "rows_are_exact": True,
        "protocol": {"prompts": "30", "num_speculative_tokens": str(n)},
        "provenance": {"image": "v1"},
    }
    return {
        "started": "2026-12-01T10:00:00Z",
        "run_ids": ["a"],
        "points": [{**point, **changes}],
    }


def only_change(
    before: records.Json, after: records.Json, *older: records.Json
) -> comparison.Change:
    [change] = comparison.compare([before, *older], after).changes
    return change


def test_the_same_rows_are_no_change() -> None:
    change = only_change(past(), past())
    assert change.judgement is Judgement.SAME
    assert (change.lower, change.upper) == (0.0, 0.0)


def test_a_shift_of_every_prompt_is_found_though_prompts_differ_more_than_it() -> None:
    before = past(rows=[[5 * i, 100] for i in range(30)])
    after = past(2.2, rows=[[max(5 * i - 3, 0), 100] for i in range(30)])
    change = only_change(before, after)
    assert change.judgement is Judgement.WORSE
    assert "paired over 30 prompts" in change.noise
    assert comparison.compare([before], after).status == 1
    back = only_change({**after, "run_ids": ["b"]}, before)
    assert back.judgement is Judgement.BETTER


def test_prompts_that_cannot_be_paired_use_both_standard_errors() -> None:
    before = past(rows=[[5 * i, 100] for i in range(30)])
    after = past(2.2, rows=[[5 * i - 3, 100] for i in range(1, 30)])
    change = only_change(before, after)
    assert change.judgement is Judgement.SAME
    assert "standard errors of both" in change.noise
    # As many rows, but of chunks that miss what was cut off.
    change = only_change(past(rows_are_exact=False), past())
    assert "standard errors of both" in change.noise


@pytest.mark.parametrize(
    ("rows", "kind", "why"),
    [
        ([], "al", "fewer than 5 requests"),
        ([[1, 1]] * 4, "al", "fewer than 5 requests"),
        ([], "serving", "fewer than 3 runs"),
    ],
)
def test_without_a_measure_of_noise_nothing_is_called_better_or_worse(
    rows: list[list[int]], kind: str, why: str
) -> None:
    change = only_change(past(rows=rows, kind=kind), past(1.1, rows=rows, kind=kind))
    assert change.judgement is Judgement.UNKNOWN
    assert change.noise == f"{why} tell no noise"
    assert change.words() == "-51.5%"


def test_past_runs_tell_the_noise_of_a_throughput() -> None:
    runs = [past(value, "serving") for value in (1000.0, 1010.0, 990.0)]
    slower, same = past(900.0, "serving"), past(985.0, "serving")
    assert only_change(runs[0], slower, *runs[1:]).judgement is Judgement.WORSE
    assert only_change(runs[0], same, *runs[1:]).judgement is Judgement.SAME
    assert only_change(runs[0], slower, runs[1]).judgement is Judgement.UNKNOWN
    other = past(990.0, "serving", protocol={"client": "another"})
    assert only_change(runs[0], slower, runs[1], other).judgement is Judgement.UNKNOWN


def test_accuracy_of_a_few_documents_is_noise_and_of_many_is_not() -> None:
    few = only_change(past(0.95, "score", samples=40), past(0.90, "score", samples=40))
    many = only_change(past(0.95, "score"), past(0.90, "score"))
    assert (few.judgement, many.judgement) == (Judgement.SAME, Judgement.WORSE)
    assert many.words().startswith("-0.0500 (-0.0")


@pytest.mark.parametrize("samples", [(None, 1319), (1319, None)])
def test_without_a_number_of_documents_past_runs_dont_tell_the_noise_of_an_accuracy(
    samples: tuple[int | None, int | None],
) -> None:
    before, after = (past(0.9, "score", samples=number) for number in samples)
    change = only_change(before, after, *([past(0.9, "score")] * 3))
    assert change.judgement is Judgement.UNKNOWN
    assert change.noise == "a number of documents is missing"


def test_another_protocol_is_refused_and_named() -> None:
    after = past(protocol={"prompts": "80", "num_speculative_tokens": "2"})
    with pytest.raises(UsageError, match="prompts was 30, is 80"):
        comparison.compare([past()], after)


def test_no_common_cell_is_refused_with_the_nearest() -> None:
    other = past(subject={"model_prefix": "dsv4", "hw": "b300"})
    with pytest.raises(UsageError, match="hw was b200, is b300"):
        comparison.compare([past()], other)


@pytest.mark.parametrize(
    "after",
    [past(None), past(None, protocol={"prompts": "None"}), {**past(), "points": []}],
    ids=["null", "null and nobody knows how", "gone"],
)
def test_what_is_no_longer_measured_is_said(after: records.Json) -> None:
    after = {**after, "points": [*after["points"], *past(n=3)["points"]]}
    before = {**past(), "points": [*past()["points"], *past(n=3)["points"]]}
    found = comparison.compare([before], after)
    assert found.changes[0].judgement is Judgement.LOST
    assert found.status == 3


@pytest.mark.parametrize(
    ("before", "after", "judgement", "status"),
    [(None, 2.2, Judgement.UNKNOWN, 0), (None, None, Judgement.LOST, 3)],
)
def test_what_was_not_measured_before(
    before: float | None, after: float | None, judgement: Judgement, status: int
) -> None:
    found = comparison.compare([past(before)], past(after))
    assert [change.judgement for change in found.changes] == [judgement]
    assert found.status == status
    assert found.changes[0].words() == "—"


def test_what_may_differ_is_shown() -> None:
    change = only_change(past(), past(provenance={"image": "v2"}))
    assert change.differs == "image was v1, is v2"


# --- the board


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_dirs.goldens(tmp_path_factory.mktemp("g") / "golden")


def gather(directory: Path, golden: Path) -> Report:
    return content.gather(directory, Options(golden=golden))


def test_a_later_result_replaces_the_verdict_on_an_earlier_one(
    tmp_path: Path, golden: Path
) -> None:
    report_dirs.job(tmp_path / "attempt-1", score=0.5, run_id="one")
    second = report_dirs.job(tmp_path / "attempt-2", run_id="two")
    report_dirs.later(second)
    report = gather(tmp_path, golden)
    assert (report.status, report.summary) == (0, "3 passed")
    assert {row.job for row in report.rows} == {"attempt-2"}
    assert {row.job for row in report.replaced} == {"attempt-1"}
    assert Outcome.FAIL in {row.outcome for row in report.replaced}
    assert [(one.job, one.outcome) for one in report.lengths] == [("attempt-2", Outcome.PASS)]
    assert {one.job for one in (*report.scores, *report.speeds)} == {"attempt-2"}


def test_a_part_that_was_run_again_replaces_that_part_alone(tmp_path: Path, golden: Path) -> None:
    report_dirs.job(tmp_path / "a", concurrencies=(1, 32), score=0.5, run_id="one")
    again = report_dirs.job(
        tmp_path / "b", concurrencies=(1, 32), al=False, speed=None, run_id="two"
    )
    (again / "results_gsm8k_conc1.json").unlink()
    report_dirs.later(again)
    report = gather(tmp_path, golden)
    assert report.status == 1
    assert [row.name for row in report.red] == ["a: gsm8k conc=1"]


def test_two_results_of_one_time_are_nobodys_verdict(tmp_path: Path, golden: Path) -> None:
    for name in ("a", "b"):
        report_dirs.job(tmp_path / name, run_id=name)
    report = gather(tmp_path, golden)
    assert report.status == 3
    assert {row.verdict.reason for row in report.red} == {"same_time"}


def test_a_result_without_a_job_is_on_the_board(tmp_path: Path, golden: Path) -> None:
    folder = report_dirs.job(tmp_path / "jobs" / "a")
    (folder / "results_gsm8k_conc1.json").rename(tmp_path / "results_gsm8k_conc1.json")
    report = gather(tmp_path, golden)
    assert report.status == 3
    assert {row.verdict.reason for row in report.red} == {"missing", "dropped"}


def test_concurrencies_are_asked_of_one_run_only(tmp_path: Path, golden: Path) -> None:
    for name in ("a", "b"):
        report_dirs.job(tmp_path / name)
    with pytest.raises(UsageError, match="is for one run"):
        content.gather(tmp_path, Options(golden=golden, expected_concs=[1]))


def test_twins_of_a_sweep_are_compared(tmp_path: Path, golden: Path) -> None:
    report_dirs.job(tmp_path / "base", n=None, speed=500.0)
    report_dirs.job(tmp_path / "mtp", speed=1250.0)
    report_dirs.job(tmp_path / "elsewhere", hw="b300", speed=9000.0)
    [pair] = gather(tmp_path, golden).twins
    assert (pair.base, pair.speculated, pair.refused) == ("base", "mtp", "")
    assert [v.measured for v in pair.verdicts if v.check == "speed_up"] == [2.5]


def test_twins_that_cannot_be_compared_say_why(tmp_path: Path, golden: Path) -> None:
    (report_dirs.job(tmp_path / "base", n=None) / "server_command.json").unlink()
    report_dirs.job(tmp_path / "mtp")
    [pair] = gather(tmp_path, golden).twins
    assert "server_command.json" in pair.refused


def test_energy_is_shown_where_the_record_has_it(tmp_path: Path, golden: Path) -> None:
    folder = report_dirs.job(tmp_path / "a")
    file = folder / "dsv4_serving.json"
    gpu = {"state": "complete", "reason": None, "energy_per_output_token_j": 0.25}
    records.write_json(file, {**records.read_json(file), "gpu": {**gpu, "mean_power_w": 700.0}})
    report = gather(tmp_path, golden)
    assert "0.250" in page.render(report)
    assert "700 W" in page.render(report)
    partial = {"state": "partial", "reason": "samples don't bracket the window"}
    records.write_json(file, {**records.read_json(file), "gpu": partial})
    assert "partial: samples don" in page.render(gather(tmp_path, golden))


def test_every_figure_has_its_own_verdict(tmp_path: Path, golden: Path) -> None:
    report = gather(report_dirs.job(tmp_path / "a", score=0.5), golden)
    assert [one.outcome for one in report.lengths] == [Outcome.PASS]
    assert [one.outcome for one in report.speeds] == [Outcome.PASS]
    assert [(one.outcome, one.samples) for one in report.scores] == [(Outcome.FAIL, 1319)]
    report = gather(report_dirs.job(tmp_path / "b", positions=(500, 300)), golden)
    assert [one.outcome for one in report.lengths] == [Outcome.FAIL]
    assert [one.outcome for one in report.scores] == [Outcome.PASS]


def test_the_way_to_an_early_decision_is_shown(tmp_path: Path, golden: Path) -> None:
    error = {"error_rate": 0.001, "standard_error": 0.02}
    looks = [
        {"prompts": 40, "log_ratio": -0.01, "outcome": "go_on", **error},
        {"prompts": 80, "log_ratio": -0.002, "outcome": "pass", **error},
    ]
    early = {"looks": looks, "undecidable": None}
    report_dirs.job(tmp_path / "a", early=early, workload={"requests": 80})
    report = gather(tmp_path / "a", golden)
    assert [look["prompts"] for look in report.lengths[0].looks] == [40, 80]
    assert "40 prompts go on, 80 prompts pass" in page.render(report)


# --- downloads


def test_downloads_hold_the_files_and_stay_within_their_room(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text('{"a": 1}')
    (tmp_path / "large.json").write_bytes(random.Random(0).randbytes(50_000))
    (tmp_path / ".hidden.json").write_text("{}")
    (tmp_path / "report.html").write_text("ours")
    found = {one.name: one for one in downloads.collect([("", tmp_path)], room=5_000)}
    assert found.keys() == {"small.json", "large.json"}
    assert found["large.json"].href is None
    _, _, data = (found["small.json"].href or "").partition("base64,")
    assert gzip.decompress(base64.b64decode(data)) == b'{"a": 1}'


def test_what_one_file_took_is_no_longer_there_for_the_next(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(random.Random(name).randbytes(3_000))
    found = downloads.collect([("", tmp_path)], room=5_000)
    assert [one.href is None for one in found] == [False, True]


# --- plots


def length(**changes: object) -> Length:
    values: dict[str, object] = {
        "job": "",
        "cell": "AL on N=2",
        "outcome": Outcome.PASS,
        "file": "f",
        "n": 2,
        "family": "$x$ <script>",
        "bands": (Band(2, 2.27, 2.2, 2.4, "g"),),
        "acceptance_length": 2.27,
        **changes,
    }
    return Length(**values)  # type: ignore[arg-type]


def look(prompts: int, log_ratio: float | None, standard_error: float | None) -> records.Json:
    return {"prompts": prompts, "log_ratio": log_ratio, "standard_error": standard_error}


DRAWINGS = {
    "curve": lambda: plots.curve(
        Curve("f", length().bands, (length(), length(lower=2.1, upper=2.4)))
    ),
    "one point, no golden": lambda: plots.curve(Curve("f", (), (length(bands=()),))),
    "golden alone": lambda: plots.curve(
        Curve("f", length().bands, (length(acceptance_length=None),))
    ),
    "positions": lambda: plots.positions(length(per_position=(0.7, 0.0), conditional=(0.7, None))),
    "requests": lambda: plots.requests(length(rows=((5, 10), (0, 0), (7, 9)))),
    "one request": lambda: plots.requests(length(rows=((5, 10),))),
    "path": lambda: plots.path(length(looks=(look(9, None, None), look(20, 0.1, 0.05)))),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_plot_is_xml_in_the_pages_colours_without_names_of_its_own(name: str) -> None:
    svg = DRAWINGS[name]()
    assert svg
    ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns:xlink="x" '))
    assert not re.search(r"#0[0-9]0[0-9]0[0-9]", svg)
    assert "nan" not in svg.lower().replace("dominant", "")
    names = re.findall(' id="([^"]+)"', svg)
    assert len(names) == len(set(names))
    assert all(f"#{own}" in svg for own in names)


def test_nothing_to_draw_is_no_plot() -> None:
    bare = length(acceptance_length=None, bands=())
    assert plots.curve(Curve("f", (), (bare,))) is None
    assert (plots.positions(bare), plots.requests(bare), plots.path(bare)) == (None, None, None)


def test_points_of_one_n_lie_side_by_side_within_its_box() -> None:
    places = plots._beside([2, 2, 3])
    assert places[0] < 2 < places[1]
    assert places[2] == 3
    assert all(
        math.isclose(place, n, abs_tol=0.2) for place, n in zip(places, [2, 2, 3], strict=True)
    )
