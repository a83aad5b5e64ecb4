"""A recipe with and without speculation, from result directories whose figures are known."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import run_files
from utils import records
from utils.errors import UsageError
from utils.recipes import __main__ as recipes
from utils.recipes import compare

PLANNED = Path(__file__).parents[1] / "result_dirs" / "pass" / "planned_run"
SPECULATION = ["--speculative-config", '{"method": "ngram"}', "--enable-per-request-metrics"]
SERVING, SCORE = "smollm2_serving.json", "results_arithmetic_conc8.json"
GREEDY = {
    "schema": "greedy_outputs/1",
    "run_id": None,
    "model": "m",
    "model_prefix": "smollm2",
    "thinking": "off",
    "spec_decoding": "none",
    "dataset": "humaneval-proxy",
    "prompts_sha256": "0" * 64,
    "output_len": 2,
    "steps": None,
    "accepted": None,
    "started": "2026-12-01T10:00:00Z",
    "finished": "2026-12-01T10:00:00Z",
    "outputs": [
        {
            "id": "a",
            "finish_reason": "length",
            "tokens": ["x", "y"],
            "runners_up": ["z", "z"],
            "margins": [2.0, 2.0],
        }
    ],
}


class Pair:
    """Two result directories; `change` edits a file of one."""

    def __init__(self, folder: Path) -> None:
        self.base, self.mtp = folder / "base", folder / "mtp"
        for directory in (self.base, self.mtp):
            shutil.copytree(PLANNED, directory)
            (directory / "expected.txt").unlink()
        (self.base / "results_speedbench_al_off_mtp3.json").unlink()
        plan = records.read_json(self.base / "plan.json")
        plan |= {"spec_decoding": "none", "num_speculative_tokens": None}
        plan["cells"] = [cell for cell in plan["cells"] if cell["kind"] != "al"]
        records.write_json(self.base / "plan.json", plan, "plan")
        command = ["vllm", "serve", "m", "--port", "1", "--max-num-seqs", "32"]
        self.command(self.base, command)
        self.command(self.mtp, [*command[:4], "2", *command[5:], *SPECULATION])

    def command(self, directory: Path, argv: list[str], **change: Any) -> None:
        facts = {"env": {"A": "1"}, "image": None, "engine_version": "0.32.0", **change}
        record = run_files.server_command(argv=argv, **facts)
        records.write_json(directory / "server_command.json", record, "server_command")

    def change(self, path: Path, **values: Any) -> None:
        records.write_json(path, records.read_json(path) | values)

    def verdicts(self) -> dict[str, Any]:
        base, mtp = compare.load(self.base), compare.load(self.mtp)
        compare.refuse_other_protocol(base, mtp)
        return {verdict.check: verdict for verdict in compare.verdicts(base, mtp)}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_the_twins_differ_in_speculation_alone(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    faster = {"output_tokens_per_s": 85.4, "duration_s": 29.98}
    pair.change(pair.mtp / SERVING, **faster)
    assert recipes.main(["compare", str(pair.base), str(pair.mtp)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        """+ --speculative-config '{"method": "ngram"}'""",
        "+ --enable-per-request-metrics",
    ]
    assert [line.split()[0] for line in lines[2:]] == ["PASS"] * 3
    assert "significant below 0.01) — 0.9000 and 0.9000 with speculation" in lines[3]
    assert "p = 1; 95 % interval of the difference -0.130 to +0.130" in lines[3]
    assert "speed_up 2.0000" in lines[4]
    assert "42.7 → 85.4 output tokens/s" in lines[4]


def test_another_setting_leaves_no_verdict(pair: Pair) -> None:
    pair.command(pair.mtp, ["vllm", "serve", "m", "--max-num-seqs", "64", *SPECULATION])
    verdict = pair.verdicts()["differences"]
    assert (verdict.outcome, verdict.reason) == ("not_measured", "settings_differ")
    assert "--max-num-seqs 32; --max-num-seqs 64" in verdict.detail


def test_the_environment_counts_too(pair: Pair) -> None:
    argv = ["vllm", "serve", "m", "--max-num-seqs", "32", *SPECULATION]
    pair.command(pair.mtp, argv, env={"A": "2"})
    assert "A=1; A=2" in pair.verdicts()["differences"].detail


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("plan.json", {"precision": "fp8"}, "precision 'bf16' and 'fp8'"),
        ("plan.json", {"hw": "b200"}, "hw 'cpu' and 'b200'"),
        (
            "plan.json",
            {"cells": [{"kind": "al", "thinking": "off", "num_speculative_tokens": 3}]},
            "cells",
        ),
        ("plan.json", {"spec_decoding": "none"}, "without speculation first"),
        ("server_command.json", {"engine_version": "0.33.0"}, "'0.32.0' and '0.33.0'"),
        ("server_command.json", {"image": "i@sha256:1"}, "image None and 'i@sha256:1'"),
    ],
)
def test_another_protocol_is_refused(
    pair: Pair, file: str, change: dict[str, Any], message: str
) -> None:
    pair.change(pair.mtp / file, **change)
    with pytest.raises(UsageError, match=message):
        pair.verdicts()


def test_no_result_directory_is_refused(pair: Pair, tmp_path: Path) -> None:
    (pair.base / "server_command.json").unlink()
    with pytest.raises(UsageError, match="name the result directory of a recipe"):
        compare.load(pair.base)


def test_a_lower_score_is_a_difference(pair: Pair) -> None:
    results = records.read_json(pair.mtp / SCORE)
    results["results"]["arithmetic"].update(
        {"exact_match,strict-match": 0.5, "exact_match,flexible-extract": 0.5}
    )
    records.write_json(pair.mtp / SCORE, results)
    verdict = pair.verdicts()["accuracy_difference"]
    assert (verdict.outcome, verdict.reason) == ("fail", "accuracy_differs")
    assert verdict.measured == pytest.approx(-0.4)


def test_what_the_gate_refuses_is_not_compared(pair: Pair) -> None:
    pair.change(pair.mtp / SERVING, completed=32, failed=8)
    verdict = pair.verdicts()["speed_up"]
    assert (verdict.outcome, verdict.reason) == ("not_measured", "not_measured")
    assert "requests_failed" in verdict.detail


def test_a_missing_result_is_not_compared(pair: Pair) -> None:
    (pair.base / SCORE).unlink()
    assert "missing" in pair.verdicts()["accuracy_difference"].detail


def test_another_client_did_other_work(pair: Pair) -> None:
    pair.change(pair.mtp / SERVING, client="aiperf")
    assert pair.verdicts()["speed_up"].reason == "other_load"


def test_energy_of_a_gpu_recipe(pair: Pair) -> None:
    for directory, joules in ((pair.base, 0.6), (pair.mtp, 0.3)):
        gpu = {"state": "complete", "reason": None, "energy_per_output_token_j": joules}
        pair.change(directory / SERVING, gpu=gpu)
        pair.change(directory / "plan.json", hw="b200")
    verdict = pair.verdicts()["energy_ratio"]
    assert (verdict.outcome, verdict.measured) == ("pass", 0.5)
    assert verdict.detail == "0.600 → 0.300 J per output token"


@pytest.mark.parametrize(
    ("gpu", "reason", "text"),
    [
        ({"state": "complete", "energy_per_output_token_j": 0.0}, "no_energy", "6.0 and 0.0 J"),
        ({"state": "complete"}, "no_energy", "6.0 and None J per output token"),
        ({"state": "partial", "reason": "a gap"}, "partial", "complete and partial with"),
        ({"state": "no_gpu", "reason": "no nvidia-smi"}, "no_gpu", "no nvidia-smi"),
    ],
)
def test_without_an_energy_nothing_is_compared(
    pair: Pair, gpu: dict[str, Any], reason: str, text: str
) -> None:
    whole = {"state": "complete", "reason": None, "energy_per_output_token_j": 6.0}
    pair.change(pair.base / SERVING, gpu=whole)
    pair.change(pair.mtp / SERVING, gpu={"reason": None, **gpu})
    for directory in (pair.base, pair.mtp):
        pair.change(directory / "plan.json", hw="b200")
    verdict = pair.verdicts()["energy_ratio"]
    assert (verdict.outcome, verdict.reason) == ("not_measured", reason)
    assert text in verdict.detail


def test_greedy_outputs_are_compared_where_there_are_some(pair: Pair) -> None:
    records.write_json(pair.base / "greedy_outputs.json", GREEDY)
    theirs = {**GREEDY, "spec_decoding": "ngram", "steps": 2, "accepted": 1}
    records.write_json(pair.mtp / "greedy_outputs.json", theirs)
    assert pair.verdicts()["broken_partings"].outcome == "pass"
