#!/usr/bin/env python3
"""Makes the pictures of the documents from bundled runs: `.github/pictures.py ANALYZE`, in the environment of analyze/tests/page.txt.

report.png is the first screen of a report, chain.png the account of a launch that waited for a lock.
"""

import pathlib
import subprocess
import sys
import tempfile

from playwright.sync_api import sync_playwright

HERE = pathlib.Path(__file__).resolve().parent
TESTDATA = HERE.parent / "testdata"


def page_of(analyze, run, folder):
    page = folder / f"{run.stem}.html"
    subprocess.run([analyze, "report", run, "--html", page, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return page.as_uri()


def main():
    [analyze] = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        folder = pathlib.Path(folder)
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.goto(page_of(analyze, TESTDATA / "h200/qwen2-hogs.parquet", folder))
        page.screenshot(path=HERE / "report.png")
        page.goto(page_of(analyze, TESTDATA / "courtroom/vm/futex_convoy.parquet", folder))
        page.locator("#chain-1").screenshot(path=HERE / "chain.png")
        browser.close()


if __name__ == "__main__":
    main()
