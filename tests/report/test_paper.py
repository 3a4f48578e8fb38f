"""Pages on paper and on a usual screen: no column is cut, and no page is left half empty.

What a page looks like is decided by a browser. Where there is none, only the rules that it follows are looked at.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedaudit.report import html
from fedaudit.report.pages import advice_page
from fedaudit.report.shapes import Table
from fedaudit.results.advice import Advice, Risk, Tried, named
from fedaudit.types import Estimate
from tests.report import builder

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
browser = pytest.mark.skipif(not BROWSER, reason="no browser without a window is installed")
WIDE, HIGH = 688, 1000  # what the margins leave of a sheet of A4, in CSS pixels

MEASURE = """
const wide = [...document.querySelectorAll(".holds, .scroll")].filter(e => e.checkVisibility()
  && (e.scrollWidth > document.documentElement.clientWidth || e.scrollWidth > e.clientWidth + 1));
const faded = [...document.querySelectorAll(".scroll")].filter(e => getComputedStyle(e).maskImage !== "none");
const high = [...document.querySelectorAll("figure")].map(e => e.getBoundingClientRect().height);
document.title = JSON.stringify({wide: wide.map(e => e.innerText), faded: faded.length, high: high});
"""


def tried() -> Advice:
    """An advice as `fedaudit advise` gives it: twelve changes, one of which does not fit."""
    right = Estimate("accuracy", 0.612, 0.536, 0.683, 0.95, "exact", "measured", 180, 0)
    risk = Risk(
        attack="matched-filter", vantage="server", model="local", party=None, value=0.102, low=0.043, high=0.162
    )
    names = ("as it is", "DP-SGD, noise 0.3", "user-level DP", "clipping", "secure aggregation", "frozen first layer")
    found = [
        Tried(
            name=n,
            words=n,
            overrides={},
            rounds=4,
            of=4,
            status="trained to the end",
            risk=risk,
            estimates=named(accuracy=right),
        )
        for n in names
    ]
    unfit = "does not fit: [no-subjects] party-0 has records without subjects. Use dp-sgd, or data with subjects."
    found.append(
        Tried(
            name="subject-level DP",
            words="subject-level DP",
            overrides={},
            rounds=0,
            of=4,
            status=unfit,
            risk=None,
            estimates={},
        )
    )
    return Advice(
        schema=1,
        limit="tpr@0.05 < 0.08",
        confidence=0.975,
        rungs=[1, 2, 4],
        tried=found,
        confirmed=[],
        recommended=None,
        nearest=None,
        sentences=("None was confirmed.",),
        cost=12.9,
    )


def measured(page: str, folder: Path, width: int) -> Any:
    """What a browser makes of the page. The policy is taken out, so that it can be measured."""
    page = re.sub(r"<meta http-equiv=.*?>", "", page).replace("</body>", f"<script>{MEASURE}</script></body>")
    (folder / "page.html").write_text(page, encoding="utf-8")
    asked = [BROWSER, "--headless", "--disable-gpu", "--no-sandbox", f"--user-data-dir={folder / 'profile'}"]
    asked += [f"--window-size={width},{HIGH}", "--hide-scrollbars", "--dump-dom", (folder / "page.html").as_uri()]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=120)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    return json.loads(title[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def on_paper(page: str) -> str:
    return page.replace("@media print", "@media all")


@browser
def test_the_advice_is_whole_on_a_usual_screen(tmp_path: Path) -> None:
    """The last column, what became of a change, was cut at 1280 pixels."""
    found = measured(advice_page(tried(), "mine"), tmp_path, 1280)
    assert (found["wide"], found["faded"]) == ([], 0)


@browser
@pytest.mark.parametrize("page", ["report", "advice"])
def test_nothing_is_cut_on_paper_and_nothing_empties_half_a_page(tmp_path: Path, page: str) -> None:
    """A chart with its heading was so high that it left half of a page empty, and wide tables were cut."""
    whole = {
        "report": lambda: html.render(builder.read(builder.results(parties=4, attacks=7))),
        "advice": lambda: advice_page(tried(), "mine"),
    }[page]()
    found = measured(on_paper(whole), tmp_path, WIDE)
    assert (found["wide"], found["faded"]) == ([], 0)
    assert found["high"]
    assert max(found["high"]) < 0.3 * HIGH


def test_a_column_with_words_is_broken_into_lines_and_begins_at_the_left() -> None:
    """By column, not by cell: of a column, some cells stood at the left and some at the right."""
    table = Table(("change", "rounds", "by"), [["a", "4 of 4", "–"], ["b", "2 of 4", "x" * 40]])
    assert table.wordy == [False, False, True]
    page = advice_page(tried(), "mine").split("what became of it")[1]
    row = next(row for row in page.split("<tr>") if "subject-level DP" in row)
    assert re.findall(r"<td(.*?)>", row) == ["", "", ' class="text"', "", ' class="text"']


def test_the_rules_for_paper() -> None:
    style = html._asset("style.css").split("@media print")[1]
    rules = re.findall(r"^  (\S.*?) \{ (.*?) \}", style, re.MULTILINE)
    for selector, rule in (
        ("th, td, tbody th", "white-space: normal"),
        (".wide > .scroll.more", "mask-image: none"),
        ("figure", "display: grid"),
    ):
        (found,) = [said for one, said in rules if one == selector]
        assert rule in found, selector


def test_an_interval_is_never_broken_and_can_be_copied() -> None:
    page = html.render(builder.read(builder.results()))
    cell = next(cell for cell in re.findall(r"<td.*?>(.*?)</td>", page) if "–" in cell and " %" in cell)
    assert re.fullmatch(r"[\d.]+ % \([\d.]+–[\d.]+\)", re.sub("<.*?>", "", cell))
    assert re.findall(r'<span class="whole">(.*?)</span>', cell)[0].endswith(" %")
