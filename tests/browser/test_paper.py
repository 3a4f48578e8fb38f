"""Pages on paper and on a usual screen: no column is cut, and no page is left half empty."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedaudit.report import html
from fedaudit.report.evidence import annex
from fedaudit.report.pages import advice_page
from fedaudit.report.values import cleaned
from tests.browser.conftest import Opened, Tab
from tests.browser.test_report import LOOK
from tests.report import builder
from tests.report.test_evidence import document
from tests.report.test_paper import tried

WIDE, HIGH = 688, 1000  # what the margins leave of a sheet of A4, in CSS pixels
CUT = """() => ({
  wide: [...document.querySelectorAll(".holds, .scroll")].filter((e) => e.checkVisibility()
    && (e.scrollWidth > document.documentElement.clientWidth || e.scrollWidth > e.clientWidth + 1))
    .map((e) => e.innerText),
  faded: [...document.querySelectorAll(".scroll")].filter((e) => getComputedStyle(e).maskImage !== "none").length,
  high: [...document.querySelectorAll("figure")].map((e) => e.getBoundingClientRect().height),
})"""


def shown(opened: Tab, page: str, folder: Path) -> Tab:
    (folder / "page.html").write_text(page, encoding="utf-8")
    opened.page.goto((folder / "page.html").as_uri())
    return opened


def test_the_advice_is_whole_on_a_usual_screen(tmp_path: Path, tab: Opened) -> None:
    """The last column, what became of a change, was cut at 1280 pixels."""
    found = shown(tab(), advice_page(tried(), "mine"), tmp_path).page.evaluate(CUT)
    assert (found["wide"], found["faded"]) == ([], 0)


PAGES: dict[str, Callable[[], str]] = {
    "report": lambda: html.render(builder.read(builder.results(parties=4, attacks=7))),
    "advice": lambda: advice_page(tried(), "mine"),
}


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_cut_on_paper_and_nothing_empties_half_a_page(tmp_path: Path, page: str, tab: Opened) -> None:
    """A chart with its heading was so high that it left half of a page empty, and wide tables were cut."""
    opened = tab(width=WIDE, height=HIGH)
    opened.page.emulate_media(media="print")
    shown(opened, PAGES[page](), tmp_path)
    found = opened.page.evaluate(CUT)
    assert (found["wide"], found["faded"]) == ([], 0)
    assert found["high"]
    assert max(found["high"]) < 0.3 * HIGH
    assert [wrong for wrong in opened.page.evaluate(LOOK)["wrong"] if "lies over" not in wrong] == []
    heads = "[...document.querySelectorAll('thead button')].map((each) => getComputedStyle(each).display)"
    assert set(opened.page.evaluate(heads)) == {"contents"}  # else a table that goes on has no head on the next page


SHORT: dict[str, Callable[[], str]] = {
    "summary": lambda: html.render(builder.read(builder.results(parties=3, attacks=5)), brief=True),
    "annex": lambda: annex(cleaned(document())),
}


@pytest.mark.parametrize("page", SHORT)
def test_what_is_to_be_short_has_two_pages_at_most(tmp_path: Path, page: str, tab: Opened) -> None:
    opened = shown(tab(width=WIDE, height=HIGH), SHORT[page](), tmp_path)
    printed = opened.page.pdf(format="A4", prefer_css_page_size=True, print_background=True)
    pages = [int(number) for number in re.findall(rb"/Count (\d+)", printed)]
    assert pages
    assert max(pages) <= 2
    opened.page.emulate_media(media="print")
    assert opened.page.evaluate(CUT)["wide"] == []
