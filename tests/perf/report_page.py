"""A report on 300 cells: how long Chromium takes to open it, what axe finds in it, its size."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests import needs, report_dirs
from tests.perf.measure import Line
from utils.evals.validate_scores import Options
from utils.report import content, page

OPENINGS = 5
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def run() -> list[Line]:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        golden = report_dirs.goldens(Path(folder) / "golden")
        report = content.gather(report_dirs.sweep(Path(folder) / "sweep"), Options(golden=golden))
        file = Path(folder) / "report.html"
        file.write_text(page.render(report))
        times = []
        with sync_playwright() as playwright:
            program = needs.program("chromium", "chromium-browser", "google-chrome")
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            for _ in range(OPENINGS):
                tab = browser.new_page()
                tab.goto(file.as_uri(), wait_until="load")
                times.append(tab.evaluate(LOADED) / 1000)
            faults = len(Axe().run(tab).response["violations"])
            browser.close()
        return [
            Line(f"opening of {len(report.rows)} cells", min(times), None, "s", 1.0),
            Line("faults of that page by axe-core", faults, None, "faults", 0.0),
            Line("size of that page", file.stat().st_size / 1e6, None, "MB", 5.0),
        ]
