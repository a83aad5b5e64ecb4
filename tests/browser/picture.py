"""Make the picture of docs/reading-a-verdict.md: python -m tests.browser.picture."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests import needs, report_dirs
from utils.evals.validate_scores import Options
from utils.report import content, page

PICTURE = report_dirs.ROOT / "docs" / "reading-a-verdict.png"


def main() -> None:
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        golden = report_dirs.goldens(Path(folder) / "golden")
        report_dirs.RUNS["red"](Path(folder) / "run")
        file = Path(folder) / "report.html"
        file.write_text(page.render(content.gather(Path(folder) / "run", Options(golden=golden))))
        with sync_playwright() as playwright:
            program = needs.program("chromium", "chromium-browser", "google-chrome")
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            tab = browser.new_page(viewport={"width": 1000, "height": 820})
            tab.goto(file.as_uri())
            tab.screenshot(path=PICTURE)
            browser.close()
    Image.open(PICTURE).quantize(64).save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
