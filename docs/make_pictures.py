"""The pictures of the report in README, from a finished run: `python docs/make_pictures.py RUN` (needs Chromium).

Made from `fedaudit demo`. The page is rendered anew, so that its words are those of today; top of the page, and the
sections about attacks and few accusations, each in light and dark.
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from fedaudit.report.html import render
from fedaudit.results.document import load, with_sentences

HERE = Path(__file__).parent
PICTURES = {  # name: width, height, height of a row of the table of attacks, sections (none: all)
    "report": (1100, 1075, 0, ()),
    "report-attacks": (870, 1170, 54, ("attacks", "roc")),
}
SCHEMES = {"light": 1, "dark": 0}  # as Chromium numbers them


def page(run: Path, keep: tuple[str, ...]) -> str:
    document = load(run)
    said_anew = [replace(headline, sentence="") for headline in document.headlines]
    document = with_sentences(replace(document, headlines=said_anew, run=replace(document.run, name="demo")))
    source = render(document)
    if not keep:
        return source
    source = re.sub(r"<header.*?</header>|<nav.*?</nav>", "", source, flags=re.DOTALL)
    sections = re.compile(r'<section id="(\w+)".*?</section>', re.DOTALL)
    return sections.sub(lambda found: found[0] if found[1] in keep else "", source)


def main(run: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        attacks = len({entry.attack for entry in load(run).results} - {"blind", "attribute"})
        for name, (width, least, row, keep) in PICTURES.items():
            height = least + row * attacks
            file = Path(folder) / f"{name}.html"
            file.write_text(page(run, keep), encoding="utf-8")
            for scheme, number in SCHEMES.items():
                picture = HERE / f"{name}-{scheme}.png"
                options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
                shown = [f"--window-size={width},{height}", f"--blink-settings=preferredColorScheme={number}"]
                command = ["chromium", *options, *shown, f"--screenshot={picture}", file.as_uri()]
                subprocess.run(command, check=True, capture_output=True)
                print(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
