"""The rules that pages follow on paper. What a browser makes of them is looked at in `tests/browser/test_paper.py`."""

import re

from fedaudit.report import html
from fedaudit.report.pages import advice_page
from fedaudit.report.shapes import Table
from fedaudit.results.advice import Advice, Risk, Tried, named
from fedaudit.types import Estimate
from tests.report import builder


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
