from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from utils.errors import NotMeasured, UsageError
from utils.evals import expected, thresholds
from utils.evals.validate_scores import Options, main, summary, validate
from utils.verdicts import Outcome, Verdict, exit_status

CASES = Path(__file__).parents[1] / "result_dirs"
TWO_POINTS = CASES / "pass" / "two_points_and_an_al_record_v1"


def test_is_importable() -> None:
    verdicts = validate(TWO_POINTS)
    assert [v.outcome for v in verdicts] == [Outcome.PASS] * 3
    assert verdicts[0].evidence == ("results_gsm8k_conc1.json",)
    assert verdicts[2].evidence == ("results_speedbench_al_on_mtp2.json",)


@pytest.mark.parametrize("case", sorted((CASES / "pass").iterdir()), ids=lambda path: path.name)
def test_no_file_of_a_passing_directory_can_go_unnoticed(case: Path, tmp_path: Path) -> None:
    """Taking any result away, or emptying it, turns the directory red."""
    options = options_of(case)
    # Without a plan nobody asks for a serving result, so that nobody can miss it.
    planned = (case / "plan.json").exists()
    results = {
        name
        for verdict in validate(case, options)
        for name in verdict.evidence
        if planned or not verdict.cell.startswith("serving ")
    }
    assert results
    for name in results:
        for damage in ("removed", "emptied", "cut"):
            work = tmp_path / damage / name.replace("/", "_")
            shutil.copytree(case, work)
            target = work / name
            if damage == "removed":
                target.unlink()
            else:
                text = target.read_text()
                target.write_text("" if damage == "emptied" else text[: len(text) // 2])
            assert exit_status(validate(work, options)) == 3, f"{name} {damage}"


def options_of(case: Path) -> Options:
    """What the case's arguments.txt says, as far as passing cases use it."""
    file = case / "arguments.txt"
    text = file.read_text().replace("{cases}", str(CASES)) if file.exists() else ""
    words = shlex.split(text)
    given = dict(zip(words[::2], words[1::2], strict=True))
    concs, share = given.get("--expected-concs"), given.get("--min-score")
    meta_env = given.get("--meta-env")
    return Options(
        expected_concs=[int(concs)] if concs else None,
        thresholds=case / given.get("--thresholds", Options.thresholds),
        golden=Path(given.get("--golden", Options.golden)),
        meta_env=case / meta_env if meta_env else None,
        model_prefix=given.get("--model-prefix"),
        results_glob=given.get("--results-glob", "*.json"),
        min_score=float(share) if share else None,
    )


def test_a_broken_golden_matters_only_where_an_al_is_judged(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("schema: golden/1\n")
    scores_only = CASES / "pass" / "exactly_at_the_threshold"
    assert exit_status(validate(scores_only, Options(golden=tmp_path))) == 0
    with pytest.raises(UsageError):
        validate(TWO_POINTS, Options(golden=tmp_path))


@pytest.mark.parametrize(
    ("outcomes", "text"),
    [
        ([], "0 passed"),
        ([Outcome.PASS] * 3, "3 passed"),
        (
            [Outcome.PASS] * 3 + [Outcome.FAIL, Outcome.NOT_MEASURED],
            "3 passed, 1 failed, 1 not measured",
        ),
        ([Outcome.INCONCLUSIVE], "0 passed, 1 inconclusive"),
    ],
)
def test_summary(outcomes: list[Outcome], text: str) -> None:
    assert summary([Verdict(outcome, "c", "k") for outcome in outcomes]) == text


@pytest.mark.parametrize("share", ["-0.1", "1.01", "85", "nan", "much"])
def test_min_score_is_a_share(share: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([f"--min-score={share}"])
    assert "is not a number in 0..1" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["0", "1", "0.5"])
def test_min_score_may_be_an_end_of_the_range(share: str) -> None:
    case = CASES / "pass" / "exactly_at_the_threshold"
    assert main(["--results-dir", str(case), "--min-score", share]) == 0


@pytest.mark.parametrize("concs", ["", "0", "-1", "1.5", "1 x"])
def test_expected_concs_are_positive_numbers(concs: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([f"--expected-concs={concs}"])


def test_expected_concs_may_have_commas() -> None:
    assert main(["--results-dir", str(TWO_POINTS), "--expected-concs", "32,1"]) == 0


class TestThresholds:
    """Model row, then the task's default, then --min-score, then none."""

    rows = thresholds.load(thresholds.FILE)

    @pytest.mark.parametrize(
        ("task", "prefix", "least"),
        [
            ("gsm8k", "dsr1", 0.91),
            ("gsm8k", "dsv4", 0.91),
            ("gsm8k", "glm5", 0.94),
            ("gsm8k", "glm5.1", 0.93),
            ("gsm8k", "kimik2.5", 0.90),
            ("gsm8k", "minimaxm2.5", 0.92),
            ("gsm8k", "qwen3.5", 0.94),
            ("gsm8k", "anything", 0.90),
            ("gpqa_diamond_cot_n_shot", "dsv4", 0.30),
        ],
    )
    def test_rows(self, task: str, prefix: str, least: float) -> None:
        assert self.rows.of(task, prefix).min_score == least

    def test_source_says_which_row(self) -> None:
        assert "gsm8k models.dsv4" in self.rows.of("gsm8k", "dsv4").source
        assert "gsm8k default" in self.rows.of("gsm8k", "other").source
        asked = thresholds.load(thresholds.FILE, 0.4).of("mmlu", "dsv4")
        assert (asked.min_score, asked.source) == (0.4, "--min-score")

    def test_metric_and_samples_are_the_rows(self, tmp_path: Path) -> None:
        text = thresholds.FILE.read_text().replace("exact_match,strict-match", "acc,none")
        (tmp_path / "t.yaml").write_text(text)
        found = thresholds.load(tmp_path / "t.yaml").of("gsm8k", "dsv4")
        assert (found.metric, found.samples) == ("acc,none", 1319)

    def test_min_score_never_replaces_a_row(self) -> None:
        rows = thresholds.load(thresholds.FILE, 0.1)
        assert rows.of("gsm8k", "dsv4").min_score == 0.91
        assert rows.of("gsm8k", "other").min_score == 0.90

    @pytest.mark.parametrize(
        ("task", "prefix", "reason"),
        [
            ("mmlu", "dsv4", "no_threshold"),
            ("arithmetic", "dsv4", "no_threshold"),
            ("gsm8k", None, "unknown_model"),
            ("mmlu", None, "no_threshold"),
        ],
    )
    def test_no_row_is_no_verdict(self, task: str, prefix: str | None, reason: str) -> None:
        with pytest.raises(NotMeasured) as caught:
            self.rows.of(task, prefix)
        assert caught.value.reason == reason

    def test_samples_of_the_local_task_are_its_rows(self) -> None:
        lines = (thresholds.FILE.parent / "arithmetic.jsonl").read_text().splitlines()
        assert self.rows.of("arithmetic", "smollm2").samples == len(lines)


class TestExpected:
    """What the sources say, and what they say against each other."""

    def load(self, folder: Path, meta: str, asked: list[int] | None = None) -> expected.Expected:
        (folder / "meta_env.json").write_text(meta)
        return expected.load(folder, None, asked, None)

    @pytest.mark.parametrize(
        ("meta", "concs"),
        [
            ('{"conc": 32}', (32,)),
            (
                '{"conc": 64, "eval_concs": [32, 1], "completed_eval_concs": [1, 32]}',
                (1, 32),
            ),
            ('{"conc": 64, "eval_concs": null}', (64,)),
            ('{"conc": 0}', ()),
            ('{"conc": "8"}', ()),
            ("{}", ()),
        ],
    )
    def test_concurrencies(self, tmp_path: Path, meta: str, concs: tuple[int, ...]) -> None:
        found = self.load(tmp_path, meta)
        assert (found.concurrencies, found.problems) == (concs, [])

    @pytest.mark.parametrize(
        "meta",
        [
            "[]",
            '{"eval_concs": "1 32"}',
            '{"eval_concs": [0]}',
            '{"eval_concs": ["1"]}',
            '{"eval_concs": [true]}',
            '{"completed_eval_concs": [1, 1]}',
            '{"spec_decoding": true}',
            '{"started": "yesterday"}',
            '{"infmax_model_prefix": 4}',
            '{"run_id": 4}',
            '{"started": 4}',
            '{"failed_eval_concs": [0]}',
            '{"eval_concs": 1}',
        ],
    )
    def test_wrong_shapes(self, tmp_path: Path, meta: str) -> None:
        [problem] = self.load(tmp_path, meta).problems
        assert (problem.outcome, problem.reason) == (Outcome.NOT_MEASURED, "wrong_shape")

    @pytest.mark.parametrize(
        ("method", "required"),
        [("none", False), ("", False), ("mtp", True), ("draft_model", True), ("ngram", True)],
    )
    def test_speculation_requires_an_al(self, tmp_path: Path, method: str, required: bool) -> None:
        found = self.load(tmp_path, f'{{"conc": 1, "spec_decoding": "{method}"}}')
        assert found.al_required is required

    def test_a_difference_names_its_files(self, tmp_path: Path) -> None:
        [problem] = self.load(tmp_path, '{"conc": 1}', [8]).problems
        assert problem.reason == "sources_differ"
        assert problem.evidence == ("meta_env.json",)

    def test_a_failed_point_is_never_completed(self, tmp_path: Path) -> None:
        both = '{"eval_concs": [1], "completed_eval_concs": [1], "failed_eval_concs": [1]}'
        [problem] = self.load(tmp_path, both).problems
        assert problem.reason == "failed_point"
