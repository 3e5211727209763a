#!/usr/bin/env python3
"""Drives the HTML reports in Chromium: every section is there, no request, no error, links, search, zoom, colours, scripts
off, axe-core. `page.py ANALYZE [--screenshots DIR] [RUN...]`; without runs, those of testdata/. Several browsers share the
pages. `page.py --latency PAGE...` measures first paint and zoom.

    pip install -r analyze/tests/page.txt; apt-get install chromium
"""

import argparse
import collections
import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import axe_playwright_python
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
AXE = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
COMPARED = ["hog", "sync", "empty_cache"]
# Each keeps a CPU busy.
BROWSERS = min(os.cpu_count(), 4)
SAMPLED = 6
SECTIONS = ["causes", "functions", "chains", "gaps", "nccl", "memory", "timeline", "devices", "strata", "provenance"]
HOSTILE = "<img src=x onerror=alert(1)>\"'</script><script>alert(2)</script>&lt;b&gt;\u202eevil\u2066`$(x)`"


def hostile_run(analyze, folder):
    """A run all of whose names try to be more than names."""
    rows = []
    for number in range(60):
        dur = 1_000_000 if number % 20 == 19 else 1_000
        row = dict(ts=number * 10**7, dur=dur, kind="call", op="cudaMalloc", pid=1, tid=1, comm=HOSTILE, caller=HOSTILE)
        rows.append(row)
        if dur > 1_000:
            off = dict(ts=row["ts"] + 10, dur=dur - 20, kind="off_cpu", op="preempted", pid=1, tid=1, comm=HOSTILE)
            rows.append(off | dict(next_pid=2, next_tid=2, next_comm=HOSTILE, runnable_ns=dur - 20, cpu=0))
    rows.append(dict(ts=0, dur=10**9, kind="mark", op="range", pid=1, tid=1, detail=HOSTILE))
    text = folder / "rows.ndjson"
    text.write_text("".join(json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: row["ts"])))
    run = folder / "hostile.parquet"
    subprocess.run([analyze, "import", "events", text, "--out", run, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return run


def report(analyze, run, folder):
    page = folder / f"{run.parent.name}-{run.stem}.html"
    subprocess.run([analyze, "report", run, "--html", page, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    assert page.stat().st_size < 5 << 20, f"{run}: {page.stat().st_size} bytes"
    return page


class Watched:
    """A page of which every request, error and dialog is remembered."""

    def __init__(self, browser, file, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.troubles = []
        url = file.as_uri()
        self.page.on("console", lambda m: self.troubles.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.troubles.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda r: None if r.url.split("#")[0] == url or r.url.startswith("blob:") else self.troubles.append(r.url))
        self.page.goto(url)

    def __enter__(self):
        return self.page

    def __exit__(self, *error):
        self.context.close()
        if not error[0]:
            assert not self.troubles, self.troubles


def background(page):
    return sum(map(int, page.evaluate("getComputedStyle(document.body).backgroundColor").strip("rgb()").split(",")))


def check(browser, file, sections=SECTIONS, version="report_version"):
    with Watched(browser, file, viewport={"width": 1100, "height": 900}) as page:
        for section in sections:
            assert page.locator(f"section#{section} h2").is_visible(), section
        linked(page, "nav a")
        axe(page)
        # Search: fewer rows, all of which have the word; then all again.
        word = page.locator("#functions tbody td").first.text_content() if page.locator("#functions tbody tr").count() else ""
        rows = page.locator("tbody tr:visible")
        before = rows.count()
        page.keyboard.press("/")
        page.keyboard.type(word + " surely-not-there")
        assert rows.count() == 0
        page.keyboard.press("Escape")
        assert rows.count() == before
        # Zoom and back, and from mark to mark.
        drawing = page.locator("figure.drawing:visible").first
        if drawing.count():
            plot = drawing.locator(".plot").first
            whole = plot.get_attribute("viewBox")
            drawing.focus()
            page.keyboard.press("+")
            assert plot.get_attribute("viewBox") != whole
            page.keyboard.press("0")
            assert plot.get_attribute("viewBox") == whole
            page.keyboard.press("ArrowDown")
            said = drawing.locator(".readout").text_content()
            marks = drawing.locator("title").all_text_contents()
            assert said == marks[0] and any(re.search(r"\d (ns|µs|ms|s|B|KiB|MiB|GiB|TiB|%)", mark) for mark in marks), said
        sizes(page)
        light = background(page)
        page.click("#theme")
        assert background(page) < light, "the switch darkens"
        # Chromium stores it in another process: on a busy machine many a page may begin before that is done.
        for _ in range(50):
            page.reload()
            if background(page) < light:
                break
            page.wait_for_timeout(200)
        assert background(page) < light, "and is remembered"
        axe(page)
        if page.locator("#download").count():
            with page.expect_download() as download:
                page.click("#download")
            data = json.loads(pathlib.Path(download.value.path()).read_text())
            assert data[version] == 1
        linked(page, "main a[href^='#']")
        links = page.locator(".calls > li").count()
        if links:
            page.goto(f"{file.as_uri()}#chain-{links}")
            assert page.locator(f"#chain-{links}:target").evaluate("e => e.getBoundingClientRect().top < innerHeight")
    with Watched(browser, file, color_scheme="dark") as page:
        assert background(page) < 200, "dark where the system is"
    with Watched(browser, file, java_script_enabled=False, viewport={"width": 400, "height": 800}) as page:
        for section in sections:
            assert page.locator(f"section#{section} h2").is_visible(), f"{section}, scripts off"


def recorded(file, pictures, browser):
    """The report of a run."""
    check(browser, file)
    fits(browser, file)
    if pictures:
        screenshots(browser, file, pictures)
    return file


def compared(analyze, fault, folder, browser):
    """The report of a comparison."""
    file = folder / f"compared-{fault}.html"
    sides = [ROOT / f"testdata/compare/{name}.baseline" for name in ("none", fault)]
    subprocess.run([analyze, "report", *sides, "--html", file], check=True, stdout=subprocess.DEVNULL)
    check(browser, file, ["gates", "why", "changes", "runs"], "comparison_version")
    fits(browser, file)
    return file


def parts(file):
    """What a page is made of: classes, elements with a name, headings of sections and columns; numbers in them are left out."""
    text = file.read_text()
    names = {name for listed in re.findall(r'class="([^"]*)"', text) for name in listed.split()}
    names.update(re.findall(r'<(\w+)[^>]* id="', text))
    names.update(re.sub(r"\d+", "", name) for name in re.findall(r' id="([^"]*)"', text))
    names.update(re.sub(r"[\d.,]+", "", text) for text in re.findall(r"<(?:h2|th|legend|dt)\b[^>]*>([^<]{1,60})", text))
    return names | set(re.findall(r"<(\w+)", text))


def telling(files):
    """The pages that have every part that any page has: first the one with most parts, then what adds most to those chosen."""
    left, known = {file: parts(file) for file in files}, set()
    while left:
        file = max(left, key=lambda file: len(left[file] - known))
        found = left.pop(file) - known
        if not found:
            return
        known |= found
        yield file


def linked(page, links):
    """Every link leads to one element of the page."""
    broken = page.evaluate(
        """(links) => [...document.querySelectorAll(links)].map((link) => link.getAttribute("href"))
          .filter((target) => document.querySelectorAll(target).length !== 1)""",
        links,
    )
    assert not broken, f"links that do not lead to one element: {broken}"


def axe(page):
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    # A rule that fails counts as one that leaves something open.
    failed = [(one["id"], one["message"]) for one in found["incomplete"] if "error" in one]
    assert not failed, f"rules of axe-core failed: {failed}"
    assert "color-contrast" in {one["id"] for one in found["passes"]}, "no text had its contrast measured"
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert not serious, json.dumps([(one["id"], one["nodes"][0]["html"][:300], one["nodes"][0]["failureSummary"]) for one in serious], indent=1)


def sizes(page):
    """Text, that of figures too, has one of four sizes, and no figure is scaled."""
    found = page.evaluate("""[...document.querySelectorAll("body *")]
      .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && !["SCRIPT", "STYLE", "TITLE"].includes(e.tagName.toUpperCase()))
      .map((e) => `${parseFloat(getComputedStyle(e).fontSize)}`)""")
    assert set(found) <= {"13.6", "16", "19.2", "27.2"}, set(found)
    assert page.evaluate("[...document.querySelectorAll('figure > svg')].every((e) => !e.hasAttribute('viewBox'))")


def fits(browser, file):
    """Nothing is wider than a telephone, and nothing on it is smaller."""
    with Watched(browser, file, viewport={"width": 400, "height": 800}) as page:
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 400, f"{width} pixels wide"
        sizes(page)


def latency(browser, file):
    """First paint, and a step of zoom until the frame after it, in every figure that is to be seen."""
    with Watched(browser, file, viewport={"width": 1100, "height": 900}) as page:
        page.wait_for_function("performance.getEntriesByType('paint').length > 0")
        paints = page.evaluate("performance.getEntriesByType('paint').map((entry) => [entry.name, entry.startTime])")
        steps = page.evaluate("""async () => {
          const steps = [];
          const frame = () => new Promise((next) => requestAnimationFrame(next));
          for (const figure of document.querySelectorAll("figure.drawing")) {
            if (!figure.checkVisibility()) continue;
            figure.scrollIntoView();
            for (const key of ["+", "+", "+", "-", "0"]) {
              await frame();
              const from = performance.now();
              figure.dispatchEvent(new KeyboardEvent("keydown", { key }));
              // The frame with the change has been made when the one after it begins.
              await frame();
              await frame();
              steps.push(performance.now() - from);
            }
          }
          return steps;
        }""")
    for name, ms in paints:
        print(f"{file.name}: {name} {ms:.0f} ms")
    if steps:
        print(f"{file.name}: zoom step to frame, median {statistics.median(steps):.1f} ms, most {max(steps):.1f} ms, of {len(steps)}")
    else:
        print(f"{file.name}: no figure to zoom")


def screenshots(browser, file, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        for name, width in (("wide", 1100), ("narrow", 400)):
            with Watched(browser, file, color_scheme=scheme, viewport={"width": width, "height": 900}) as page:
                page.screenshot(path=folder / f"{file.stem}-{name}-{scheme}.png")
                for part in ("chain-1", "memory", "timeline", "devices"):
                    if page.locator(f"#{part}").count():
                        page.locator(f"#{part}").screenshot(path=folder / f"{file.stem}-{part}-{name}-{scheme}.png")


@contextlib.contextmanager
def opened(chromium):
    """A browser of the calling thread."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def taken(jobs):
    """Jobs from a queue that other threads take from, too, until it is empty."""
    while True:
        try:
            yield jobs.popleft()
        except IndexError:
            return


def driven(chromium, jobs):
    """Does jobs, each of which checks a page, in a browser of its own."""
    with opened(chromium) as browser:
        for name, job in taken(jobs):
            try:
                print(f"{name}: {job(browser).stat().st_size >> 10} KiB, good", flush=True)
            except BaseException as error:
                # The other browsers end, too.
                jobs.clear()
                if isinstance(error, AssertionError):
                    sys.exit(f"{name}: {error}")
                raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("analyze", type=pathlib.Path, help="the binary; with --latency: a page")
    parser.add_argument("runs", nargs="*", type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--all", action="store_true", help="drive the pages of all bundled runs, not only a sample that has every part")
    parser.add_argument("--latency", action="store_true", help="only measure a page: first paint, and steps of zoom")
    arguments = parser.parse_args()
    analyze = arguments.analyze.resolve()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        sys.exit("no Chromium found: apt-get install chromium")
    if arguments.latency:
        with opened(chromium) as browser:
            for page in [arguments.analyze, *arguments.runs]:
                latency(browser, page.resolve())
        return
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        runs = arguments.runs or sorted(path for path in (ROOT / "testdata").rglob("*.parquet") if path.parent.name != "calls"
                                      and not path.name.endswith(".twin.parquet"))
        runs = [run.resolve() for run in runs]
        if not arguments.runs:
            runs.append(hostile_run(analyze, folder))
        assert runs, "no run"
        with ThreadPoolExecutor(BROWSERS) as pool:
            pages = list(pool.map(functools.partial(report, analyze, folder=folder), runs))
        # Every page is made. Of those of the bundled runs, enough to have every part are driven, and one in SAMPLED of all.
        chosen = pages if arguments.runs or arguments.all else {*telling(pages[:-1]), *pages[:-1:SAMPLED], pages[-1]}
        chosen = [page for page in pages if page in chosen]
        jobs = collections.deque((file.stem, functools.partial(recorded, file, arguments.screenshots)) for file in chosen)
        if not arguments.runs:
            jobs.extend((f"none and {fault}", functools.partial(compared, analyze, fault, folder)) for fault in COMPARED)
        count = len(jobs)
        with ThreadPoolExecutor(BROWSERS) as pool:
            for drive in [pool.submit(driven, chromium, jobs) for _ in range(BROWSERS)]:
                drive.result()
        print(f"{len(pages)} pages made; {count}, with those of comparisons, driven: whole, inert and accessible")


if __name__ == "__main__":
    main()
