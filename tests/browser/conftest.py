"""Debian's Chromium, driven by Playwright; pages are opened from files, as a reader opens them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import needs, report_dirs
from utils.evals.validate_scores import Options
from utils.report import content, page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PACKAGES = ("playwright", "axe_playwright_python")
# As root, in a container, Chromium can't build its sandbox, and /dev/shm may be small.
# The pages are our own.
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@dataclass
class Opened:
    """A page in the browser. said: its console and its errors. asked: every URL it asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


# Not longer than its tests: until it stops, Playwright has an event loop running in this thread.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = needs.program("chromium", "chromium-browser", "google-chrome")
    for name in PACKAGES:
        if importlib.util.find_spec(name) is None:
            needs.missing(f"the Python package {name} is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Reports by name, each rendered once."""
    root = tmp_path_factory.mktemp("reports")
    golden = report_dirs.goldens(root / "golden")
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            folder = root / name
            report_dirs.RUNS[name](folder)
            made[name] = root / f"{name}.html"
            text = page.render(content.gather(folder, Options(golden=golden)))
            made[name].write_text(text)
        return made[name]

    return make


@pytest.fixture
def opened(browser: Browser, rendered: Callable[[str], Path]) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def open_(name: str, scheme: str = "light", width: int = 1280, script: bool = True) -> Opened:
        context = browser.new_context(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": width, "height": 900},
            java_script_enabled=script,
        )
        contexts.append(context)
        found = Opened(context.new_page())
        found.page.on("console", lambda message: found.said.append(message.text))
        found.page.on("pageerror", lambda error: found.said.append(str(error)))
        found.page.on("request", lambda request: found.asked.append(request.url))
        found.page.goto(rendered(name).as_uri(), wait_until="load")
        return found

    yield open_
    for context in contexts:
        context.close()
