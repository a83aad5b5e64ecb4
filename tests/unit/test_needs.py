"""Tests that need what a laptop may lack are skipped there, and never in CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import needs

ROOT = Path(__file__).parents[2]


def test_a_laptop_skips_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(needs.REQUIRE_ALL, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not installed"):
        needs.program("no-such-program")


def test_ci_fails_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(needs.REQUIRE_ALL, "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-program is not installed"):
        needs.program("no-such-program")


def test_ci_asks_for_every_test() -> None:
    assert f"\nexport {needs.REQUIRE_ALL}=1\n" in (ROOT / ".ci" / "run").read_text()
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert workflow.count(f"{needs.REQUIRE_ALL}: '1'") == workflow.count("-m pytest")
