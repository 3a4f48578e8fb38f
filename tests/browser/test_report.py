"""The report in a browser: offline, in both themes, narrow, wide and on paper."""

import json
from pathlib import Path

import pytest

from fedaudit.report import html
from tests.browser.conftest import Opened
from tests.report import builder

HOSTILE = [
    "<script>pwned = 1</script>",
    "<img src=x onerror='pwned = 1'>",
    '"><svg onload="pwned = 1">',
    "x" * 200,
    "\u202egnp.exe",
    "مستشفى الملك",
]

# Charts that show nothing, labels outside their chart, labels of one axis over one another, and what is wider than the
# screen without a bar to scroll it by.
LOOK = """() => {
  const wrong = [];
  const charts = [...document.querySelectorAll("svg.chart")];
  for (const svg of charts) {
    const name = svg.getAttribute("aria-label") || svg.querySelector("title")?.textContent;
    const box = svg.getBoundingClientRect();
    if (box.width < 200 || box.height < 60) wrong.push(`${name}: ${box.width} x ${box.height}`);
    const marks = [...svg.querySelectorAll(".line, .dot, .cell, .bin, .whisker")];
    if (!marks.some((m) => { const b = m.getBBox(); return b.width + b.height > 1; })) wrong.push(`${name}: no marks`);
    const written = [...svg.querySelectorAll("text")].filter((t) => t.textContent.trim());
    const texts = written.map((t) => [t.textContent, t.getBoundingClientRect()]);
    for (const [text, b] of texts) {
      if (b.left < box.left - 2 || b.right > box.right + 2 || b.top < box.top - 2 || b.bottom > box.bottom + 2)
        wrong.push(`${name}: ${text} is outside`);
    }
    texts.forEach(([text, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && high > 3) wrong.push(`${name}: ${text} lies over ${other}`);
    }));
  }
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth + 1) wrong.push(`the page is ${page.scrollWidth} wide`);
  for (const figure of document.querySelectorAll("figure, section"))
    if (figure.checkVisibility() && figure.innerText.trim().length < 5) wrong.push(`empty: ${figure.id}`);
  return { wrong, charts: charts.length };
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html.render(builder.read(builder.results(parties=4, attacks=6))), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_offline_the_charts_draw_nothing_is_fetched_and_nothing_overlaps(
    report: str, tab: Opened, dark: bool, width: int
) -> None:
    opened = tab(dark, width, offline=True)
    opened.page.goto(report)
    seen = opened.page.evaluate(LOOK)
    assert seen["charts"] >= 6
    assert seen["wrong"] == []
    assert opened.requests == [report]
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(18, 21, 27)") == dark


def test_tables_are_sorted_by_their_headings_and_by_keyboard(report: str, tab: Opened) -> None:
    page = tab().page
    page.goto(report)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    table = page.locator("#parties table.sortable").first
    heads = table.locator("thead th")
    value = heads.all_inner_texts().index(
        next(t for t in heads.all_inner_texts() if "%" in t or "TPR" in t or "AUC" in t)
    )
    column = f"tbody tr td:nth-child({value + 1})"
    before = table.locator(column).all_inner_texts()
    heads.nth(value).locator("button").click()
    rising = [float(text.split()[0]) for text in table.locator(column).all_inner_texts() if text != "–"]
    assert rising == sorted(rising)
    assert heads.nth(value).get_attribute("aria-sort") == "ascending"
    heads.nth(value).locator("button").press("Enter")
    falling = [float(text.split()[0]) for text in table.locator(column).all_inner_texts() if text != "–"]
    assert falling == sorted(rising, reverse=True)
    assert sorted(before) == sorted(table.locator(column).all_inner_texts())


def test_a_pointer_is_told_the_numbers_of_a_chart(report: str, tab: Opened) -> None:
    page = tab().page
    page.goto(report)
    page.locator("#rounds svg .hit").nth(3).hover()
    assert page.locator(".tooltip").inner_text().startswith("round ")


def test_hostile_names_are_text(tmp_path: Path, tab: Opened) -> None:
    text = json.dumps(builder.results(parties=len(HOSTILE), attacks=3))
    for number, name in enumerate(HOSTILE):
        text = text.replace(f'"party-{number}"', json.dumps(name))
    text = text.replace('"baskets"', json.dumps(HOSTILE[0])).replace('"merlin"', json.dumps(HOSTILE[1]))
    (tmp_path / "report.html").write_text(html.render(builder.read(json.loads(text))), encoding="utf-8")
    opened = tab()
    opened.page.goto((tmp_path / "report.html").as_uri())
    assert opened.page.evaluate("typeof pwned") == "undefined"
    assert opened.page.locator("h1").inner_text() == HOSTILE[0]
    assert len(opened.requests) == 1
    assert opened.page.evaluate(LOOK)["wrong"] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_barrier(tmp_path: Path, tab: Opened, barriers, dark: bool) -> None:  # type: ignore[no-untyped-def]
    """On a small report: it has every kind of part, and axe-core takes its time for each cell."""
    (tmp_path / "report.html").write_text(html.render(builder.read(builder.results(2, 2))), encoding="utf-8")
    page = tab(dark).page
    page.goto((tmp_path / "report.html").as_uri())
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.evaluate("for (const each of document.querySelectorAll('tbody tr:nth-child(n + 9)')) each.remove()")
    assert barriers(page) == []
