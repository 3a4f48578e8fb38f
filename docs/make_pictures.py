"""Makes the pictures of the report that README shows, with a browser that has no window.

    fedaudit demo
    python docs/make_pictures.py runs/demo/report.html [--browser PATH/TO/chromium]

Chromium or Chrome is looked for on the PATH. The report is one file that fetches nothing, so that nothing else is
needed. The colour scheme is set as a system would set it.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
SCHEMES = {"light": "1", "dark": "0"}  # as Blink numbers them
PARTS = {"report": ("", "1180,900"), "report-attacks": ("#attacks", "1180,1500")}  # where the page begins, its size


def command(browser: str, page: Path, part: str, scheme: str, profile: str) -> list[str]:
    """What a browser is asked to do for one picture."""
    begins, size = PARTS[part]
    return [
        browser, "--headless", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=2",
        f"--user-data-dir={profile}", f"--window-size={size}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--screenshot={HERE / f'{part}-{scheme}.png'}", page.resolve().as_uri() + begins,
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
        for part in PARTS:
            for scheme in SCHEMES:
                subprocess.run(command(browser, asked.report, part, scheme, profile), check=True)


if __name__ == "__main__":
    main()
