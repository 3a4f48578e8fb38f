"""Makes the pictures of the report and of the live view that README and docs show: desk, phone, dark, and on paper.

    fedaudit demo
    python docs/make_screenshots.py runs/demo

Chromium (or Chrome) is driven by Playwright; pages on paper need pdftoppm, of poppler. The live view is shown as it was
in the middle of the run: a copy of the folder, cut off after that round. Look at each picture before it is committed:
no label is cut or lies over another, and no panel is empty.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from fedaudit import server
from fedaudit.report import html
from fedaudit.results.document import RESULTS, load
from fedaudit.trace.journal import JOURNAL

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
DESK, PHONE = (1100, 1160), (390, 844)
COLUMNS, GAP = 4, 16  # of the sheets of paper in one picture


@contextmanager
def page(browser: Browser, size: tuple[int, int], dark: bool = False, sharp: float = 1.0) -> Iterator[Page]:
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        device_scale_factor=sharp,
    )
    yield context.new_page()
    context.close()


def report(browser: Browser, address: str) -> None:
    for dark, theme in ((False, "light"), (True, "dark")):
        with page(browser, DESK, dark) as shown:
            shown.goto(address)
            shown.screenshot(path=HERE / f"report-{theme}.png")
        with page(browser, (870, 900), dark) as shown:
            shown.goto(address)
            only = "header, nav, section:not(#attacks, #roc)"
            shown.evaluate(f"for (const part of document.querySelectorAll('{only}')) part.remove()")
            shown.screenshot(path=HERE / f"report-attacks-{theme}.png", full_page=True)
    with page(browser, PHONE, sharp=1.5) as shown:
        shown.goto(address)
        shown.screenshot(path=HERE / "report-phone.png", full_page=False)
    with page(browser, DESK) as shown:
        shown.goto(address)
        on_paper(shown, HERE / "report-print.png")


def on_paper(shown: Page, picture: Path) -> None:
    """All sheets side by side."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.pdf"
        shown.pdf(path=path, format="A4", prefer_css_page_size=True, print_background=True)
        subprocess.run(["pdftoppm", "-png", "-r", "60", str(path), f"{folder}/sheet"], check=True)
        sheets = [Image.open(sheet).convert("RGB") for sheet in sorted(Path(folder).glob("sheet*.png"))]
    wide, high = sheets[0].size
    rows = -(-len(sheets) // COLUMNS)
    whole = Image.new("RGB", (COLUMNS * (wide + GAP) + GAP, rows * (high + GAP) + GAP), (120, 126, 138))
    for number, sheet in enumerate(sheets):
        row, column = divmod(number, COLUMNS)
        whole.paste(sheet, (GAP + column * (wide + GAP), GAP + row * (high + GAP)))
    whole.quantize(256).save(picture, optimize=True)


@contextmanager
def served(runs: Path) -> Iterator[str]:
    """The address of the live view of these runs."""
    sock = server.listening("127.0.0.1", 0)
    at: uvicorn.Server
    app = server.application(runs, "token", server.names(sock), ending=lambda: at.should_exit)
    at = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=at.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    yield f"http://{server.names(sock)[0]}"
    at.should_exit = True
    thread.join()


def halfway(run: Path, out: Path) -> None:
    """The run as it stood after half of its rounds."""
    shutil.copytree(run, out, ignore=shutil.ignore_patterns(RESULTS, "*.html", "signals", "rounds"))
    lines = (run / JOURNAL).read_bytes().splitlines(keepends=True)
    rounds = [number for number, line in enumerate(lines) if json.loads(line)["event"] == "round"]
    (out / JOURNAL).write_bytes(b"".join(lines[: rounds[len(rounds) // 2]]))


def live(browser: Browser, run: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        shutil.copytree(run, runs / "last-week", ignore=shutil.ignore_patterns("signals", "rounds"))
        halfway(run, runs / "going-on")
        with served(runs) as address:
            for size, dark, name in (
                (DESK, False, "live-light"),
                (DESK, True, "live-dark"),
                (PHONE, False, "live-phone"),
            ):
                with page(browser, size, dark, sharp=1.5 if size == PHONE else 1.0) as shown:
                    opened(shown, address, "going-on")
                    shown.screenshot(path=HERE / f"{name}.png")
            with page(browser, DESK) as shown:
                opened(shown, address, "going-on")
                on_paper(shown, HERE / "live-print.png")
            with page(browser, (1100, 560)) as shown:
                opened(shown, address)
                shown.screenshot(path=HERE / "live-list.png")


def opened(shown: Page, address: str, run: str = "") -> None:
    shown.goto(f"{address}/?token=token")
    if run:
        shown.get_by_role("link", name=run).click()
    shown.wait_for_selector("#link:has-text('Live')")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of the demo, finished")
    parser.add_argument("--browser", help="Chromium or Chrome (default: the first on the PATH)")
    asked = parser.parse_args()
    path = asked.browser or next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        sys.exit(f"None of these browsers is on the PATH: {', '.join(BROWSERS)}. Give one with --browser.")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        written = Path(folder) / "report.html"
        html.write(load(asked.run), written)
        report(browser, written.as_uri())
        live(browser, asked.run)
        browser.close()


if __name__ == "__main__":
    main()
