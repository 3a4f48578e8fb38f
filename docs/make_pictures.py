"""Makes the pictures of the report that README shows, with a browser that has no window.

    fedaudit demo
    python docs/make_pictures.py runs/demo/report.html [--browser PATH/TO/chromium]

Chromium or Chrome is looked for on the PATH. The report is one file that fetches nothing, so that nothing else is
needed. The colour scheme is set as a system would set it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
SCHEMES = {"light": "1", "dark": "0"}  # as Blink numbers them
# The sections that a picture shows (none: the top of the page), and its size. A browser without a window takes no
# picture of what lies below the first screen, so the other sections are left out.
PARTS: dict[str, tuple[tuple[str, ...], str]] = {
    "report": ((), "1100,1160"),
    "report-attacks": (("attacks", "roc"), "870,2210"),
}


def shown(page: str, sections: tuple[str, ...]) -> str:
    """The page with these sections alone."""
    if not sections:
        return page
    page = re.sub(r"<header.*?</header>|<nav.*?</nav>", "", page, flags=re.DOTALL)
    every = re.compile(r'<section id="(\w+)".*?</section>', re.DOTALL)
    return every.sub(lambda found: found[0] if found[1] in sections else "", page)


def command(browser: str, page: Path, part: str, scheme: str, profile: str) -> list[str]:
    """What a browser is asked to do for one picture."""
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [
        browser, "--headless", "--disable-gpu", "--hide-scrollbars", *(["--no-sandbox"] if as_root else []),
        f"--user-data-dir={profile}", f"--window-size={PARTS[part][1]}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--screenshot={HERE / f'{part}-{scheme}.png'}", page.resolve().as_uri(),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=Path, help="report.html of the demo")
    parser.add_argument("--browser", help="Chromium or Chrome (default: the first on the PATH)")
    asked = parser.parse_args()
    browser = asked.browser or next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit(f"None of these browsers is on the PATH: {', '.join(BROWSERS)}. Give one with --browser.")
    if not asked.report.is_file():
        sys.exit(f"There is no file {asked.report}. Run `fedaudit demo` first.")
    with tempfile.TemporaryDirectory() as profile:
        for part, (sections, _) in PARTS.items():
            page = Path(profile) / f"{part}.html"
            page.write_text(shown(asked.report.read_text(encoding="utf-8"), sections), encoding="utf-8")
            for scheme in SCHEMES:
                subprocess.run(command(browser, page, part, scheme, profile), check=True)


if __name__ == "__main__":
    main()
