"""A sweep over a fake engine: every combination, the baseline, what fails, and the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.decode import support
from tests.decode_torch import files
from utils import record_kinds
from utils.decode_eval import sweep, weights
from utils.errors import UsageError
from utils.records import Json


def run(folder: Path, modes: dict[str, Any], *words: str, **fields: Any) -> tuple[int, Json]:
    checkpoint = files.write(folder / "draft", files.EAGLE3, files.eagle3(), files.D2T)
    config = folder / "config.json"
    config.write_text(json.dumps(support.block(folder, modes, **fields)))
    output = folder / "sweep"
    status = sweep.main(
        [str(config), "--checkpoint", str(checkpoint), "--output", str(output), *words]
    )
    record: Json = json.loads((output / sweep.FILE).read_text())
    assert record_kinds.check(output / sweep.FILE) == sweep.SCHEMA
    assert record["sha256"] == weights.digest_of(weights.read(checkpoint))
    return status, record


def test_every_combination_is_compared_with_the_target_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, record = run(
        tmp_path, {"accept": 0.7}, "--draft-lengths", "1,3", "--concurrency", "1,3"
    )
    rows = record["rows"]
    assert status == 0, capsys.readouterr().out
    assert [(r["num_speculative_tokens"], r["concurrency"]) for r in rows] == [
        (n, c) for n in (0, 1, 3) for c in (1, 3)
    ]
    for row in rows[:2]:
        assert (row["speedup"], row["acceptance_length"], row["record"]) == (1.0, None, None)
    for row in rows[2:]:
        n = row["num_speculative_tokens"]
        assert 1 < row["acceptance_length"] <= n + 1
        assert len(row["per_position"]) == n
        base = next(r for r in rows[:2] if r["concurrency"] == row["concurrency"])
        assert row["speedup"] == row["output_tokens_per_s"] / base["output_tokens_per_s"]
        stored = json.loads((tmp_path / "sweep" / row["record"]).read_text())
        assert stored["acceptance_length"] == row["acceptance_length"]
    assert rows[2]["acceptance_length"] < rows[4]["acceptance_length"]
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(rows) + 1


def test_what_fails_is_a_row_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first server, the baseline's, dies in its load: nothing has a speed-up then."""
    modes = {"accept": 0.7, "die_at": 4, "once": str(tmp_path / "once")}
    status, record = run(tmp_path, modes, "--draft-lengths", "2")
    base, drafted = record["rows"]
    assert status == 3
    assert base["reason"] == "requests_failed"
    assert base["output_tokens_per_s"] is None
    assert drafted["error"] is None
    assert drafted["speedup"] is None
    assert drafted["acceptance_length"] > 1
    assert "not measured: requests_failed" in capsys.readouterr().out


def test_a_server_that_never_serves(tmp_path: Path) -> None:
    modes = {"never_ready": True}
    status, record = run(tmp_path, modes, "--draft-lengths", "2", boot_timeout_s=0.5)
    assert status == 3
    assert [row["reason"] for row in record["rows"]] == ["server_failed"] * 2


@pytest.mark.parametrize(
    ("words", "fields", "why"),
    [
        (("--sets", "nothing"), {}, "no prompt set 'nothing'"),
        ((), {"command": [], "base_url": "http://127.0.0.1:1"}, "starts its servers itself"),
    ],
)
def test_unusable(tmp_path: Path, words: tuple[str, ...], fields: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        run(tmp_path, {}, "--draft-lengths", "2", *words, **fields)


@pytest.mark.parametrize("text", ["0", "2,2"])
def test_numbers(tmp_path: Path, text: str) -> None:
    with pytest.raises(SystemExit):
        run(tmp_path, {}, "--draft-lengths", text)
