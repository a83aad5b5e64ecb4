"""The plot of a run: what is drawn, and the files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.decode import support
from utils.decode_eval import history, jobs, plot
from utils.errors import UsageError
from utils.records import Json


def one_set(name: str, al: float, rates: list[float]) -> Json:
    return {
        "name": name,
        "record": None,
        "prompts_sha256": "0" * 64,
        "requests_sha256": "0" * 64,
        "prompts": 6,
        "completed": 6,
        "acceptance_length": al,
        "standard_error": 0.05,
        "lower": al - 0.1,
        "upper": al + 0.1,
        "accepted_tokens": 10,
        "verify_steps": 20,
        "mean_request_acceptance_length": al,
        "per_position": rates,
        "conditional": list(rates),
        "draft_acceptance_rate": 0.3,
        "output_tokens": 100,
        "output_tokens_per_s": 10.0,
        "tokens_per_step": al,
        "rows": [],
        "reason": None,
        "error": None,
    }


def row(folder: Path, step: int, al: float | None, *names: str, **more: Any) -> Json:
    blank = jobs.blank(support.config(folder), step, 1)
    if al is None:
        return {**blank, "outcome": "skipped", "reason": "busy", "error": "<busy>"}
    figures = {
        "acceptance_length": al,
        "lower": al - 0.1,
        "upper": al + 0.1,
        "standard_error": 0.05,
    }
    counts = {"accepted_tokens": 10, "verify_steps": 20}
    sets = [one_set(name, al, [0.4, 0.2, 0.1]) for name in names]
    return {**blank, "outcome": "measured", **figures, **counts, "sets": sets, **more}


def lines(axes: Any) -> dict[str, list[tuple[float, float]]]:
    """What a panel shows, by its legend."""
    found = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        data = handle[0] if hasattr(handle, "errorbar") or isinstance(handle, tuple) else handle
        found[label] = list(zip(*(list(map(float, v)) for v in data.get_data()), strict=True))
    return found


def test_every_point_set_and_gap_is_drawn(tmp_path: Path) -> None:
    rows = [
        row(tmp_path, 0, 1.0, "code", "chat"),
        row(tmp_path, 10, None),
        row(tmp_path, 20, 1.5, "code", "chat", tau_sim=1.7),
    ]
    first, code, chat = plot.draw(rows).axes
    shown = lines(first)
    assert shown["tau_real, 95 % interval, all sets"] == [(0, 1.0), (20, 1.5)]
    assert shown["code"] == shown["chat"] == [(0, 1.0), (20, 1.5)]
    assert shown["tau_sim"] == [(20, 1.7)]
    assert shown["not measured"] == [(10, 1.0)]
    assert first.get_ylabel() == "acceptance length, N = 3"
    for axes in (code, chat):
        assert lines(axes) == {
            "1": [(0, 0.4), (20, 0.4)],
            "2": [(0, 0.2), (20, 0.2)],
            "3": [(0, 0.1), (20, 0.1)],
        }


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(tmp_path, 0, 1.0, "$code", lower=None, upper=None), row(tmp_path, 10, None)]
    history.append(tmp_path / history.FILE, rows)
    assert plot.main([str(tmp_path)]) == 0
    assert (tmp_path / "tau.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "tau.html").read_text()
    assert "<svg" in page
    assert "prompt set $code" in page
    assert "<td>1.0000</td>" in page
    assert "<td>skipped</td>" in page
    assert not re.search(r"(src|href)=.?https?:", page)
    same = tmp_path / "again.svg"
    assert plot.main([str(tmp_path), "--output", str(same)]) == 0
    assert "<svg" in same.read_text()


def test_nothing_to_draw(tmp_path: Path) -> None:
    history.append(tmp_path / history.FILE, [row(tmp_path, 10, None)])
    with pytest.raises(UsageError, match="no measured point"):
        plot.main([str(tmp_path)])
    with pytest.raises(UsageError, match="suffix"):
        plot.main([str(tmp_path), "--output", "x.pdf"])
