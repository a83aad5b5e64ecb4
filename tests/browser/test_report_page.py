"""The report's page in a real browser: readable by everybody, silent, alone, and of use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import report_dirs
from tests.browser.conftest import Opened

NAMES = ["green", "red", "missing", "inconclusive", "nothing", "hostile", "few"]
CELLS = "#board tbody tr:not([hidden])"


def faults(found: Opened) -> list[str]:
    """What axe-core finds, by rule and first element."""
    from axe_playwright_python.sync_playwright import Axe

    options = {"resultTypes": ["violations"]}
    violations = Axe().run(found.page, options=options).response["violations"]
    return [f"{v['id']} ({v['impact']}): {v['nodes'][0]['html'][:200]}" for v in violations]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_out_of_reach_and_nothing_is_fetched(
    name: str, scheme: str, opened: Callable
) -> None:
    found = opened(name, scheme)
    assert faults(found) == []
    assert found.said == []
    assert [url[:8] for url in found.asked] == ["file:///"]


def test_the_accessibility_check_sees_a_fault(opened: Callable) -> None:
    found = opened("green")
    found.page.evaluate("document.querySelector('.muted').style.color = '#ddd'")
    [fault] = faults(found)
    assert fault.startswith("color-contrast (serious)")


def test_a_page_may_not_run_what_is_not_its_own(opened: Callable) -> None:
    found = opened("green")
    found.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.x = 1';"
        " document.body.append(s); }"
    )
    assert found.page.evaluate("window.x") is None
    assert "Content Security Policy" in found.said[0]


def test_hostile_text_is_shown_and_not_run(opened: Callable) -> None:
    found = opened("hostile")
    assert "forged" not in found.page.title()
    assert report_dirs.HOSTILE in found.page.inner_text("#board")


def test_the_board_filters_by_words_and_verdict(opened: Callable) -> None:
    found = opened("sweep")
    page = found.page
    whole = page.locator(CELLS).count()
    assert whole > 250
    assert page.inner_text("#count") == f"{whole} of {whole} verdicts shown"
    page.fill("#search", "B300 gsm8k conc=1")
    few = page.locator(CELLS).count()
    assert 0 < few < whole
    texts = page.eval_on_selector_all(CELLS, "rows => rows.map(row => row.textContent)")
    assert all("b300" in text for text in texts)
    page.fill("#search", "")
    page.uncheck("input[value=pass]")
    kinds = page.eval_on_selector_all(CELLS, "rows => rows.map(row => row.dataset.outcome)")
    assert 0 < len(kinds) < whole
    assert set(kinds) == {"fail", "not_measured"}
    assert found.said == []
    assert len(found.asked) == 1


def test_the_board_sorts_by_number_and_by_word_with_the_keyboard(opened: Callable) -> None:
    page = opened("sweep").page
    # By their first digits it would come before the others.
    page.evaluate("Object.assign(document.querySelector('#board td.number'), {textContent: '100'})")
    page.evaluate("document.querySelector('#board td.number').dataset.key = '100'")
    head = page.get_by_role("button", name="Measured")
    head.focus()
    page.keyboard.press("Enter")

    def column() -> list[str]:
        return page.locator("#board tbody tr td.number").all_inner_texts()

    def numbers() -> list[float]:
        return [float(text) for text in column() if text != "—"]

    assert numbers() == sorted(numbers())
    assert column()[-1] == "—"
    page.keyboard.press("Enter")
    assert numbers() == sorted(numbers(), reverse=True)
    assert column()[-1] == "—"
    page.get_by_role("button", name="Cell").click()
    names = page.locator("#board tbody th").all_inner_texts()
    tasks = [name for name in names if name.startswith("gsm8k")]
    concurrencies = [int(name.split("conc=")[1].split()[0]) for name in tasks]
    assert concurrencies == sorted(concurrencies)
    assert page.locator("th[aria-sort=ascending]").count() == 1


def test_the_first_stop_of_the_keyboard_leads_to_the_verdicts(opened: Callable) -> None:
    page = opened("sweep").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdicts"
    assert page.locator(".skip").bounding_box()["x"] >= 0


@pytest.mark.parametrize("name", ["green", "sweep"])
def test_a_narrow_screen_scrolls_down_alone(name: str, opened: Callable) -> None:
    page = opened(name, width=360).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_without_script_everything_is_there(opened: Callable) -> None:
    page = opened("sweep", script=False).page
    assert page.locator("#board tbody tr").count() > 250
    assert page.locator("#controls").is_hidden()


def test_a_download_is_the_file(opened: Callable, tmp_path: Path) -> None:
    import gzip
    import json

    page = opened("green").page
    with page.expect_download() as started:
        page.get_by_role("link", name="plan.json").click()
    started.value.save_as(tmp_path / "plan.json.gz")
    assert started.value.suggested_filename == "plan.json.gz"
    assert json.loads(gzip.decompress((tmp_path / "plan.json.gz").read_bytes()))["hw"] == "b200"


def test_print_is_light_whole_and_without_controls(opened: Callable) -> None:
    page = opened("red", "dark", width=700).page
    page.emulate_media(media="print", color_scheme="dark")
    style = "getComputedStyle(document.querySelector('{}')).{}"
    assert page.evaluate(style.format("body", "backgroundColor")) == "rgb(255, 255, 255)"
    assert page.evaluate(style.format(".scroll", "overflow")) == "visible"
    assert page.locator("#controls").is_hidden()
    # The width of an A4 sheet between its margins; nothing is cut off.
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    assert page.pdf().startswith(b"%PDF")
