"""A report of canaries alone: it says what was and what was not found, and every section is in the contents."""

import re
from typing import Any

from fedaudit import report
from tests.report import builder
from tests.report.builder import quotable, read


def canaries_alone() -> dict[str, Any]:
    """One estimate of each kind, and no attack on membership."""
    results = builder.minimal()
    epsilons = {
        "auc": builder.estimate(0.9),
        "epsilon-one-run": builder.estimate(0.0) | {"kind": "proved"},
        "epsilon-accountant": builder.estimate(32.0) | {"kind": "claimed", "low": None},
    }
    one = results["results"][0] | {"attack": "one-shot", "vantage": "secagg-server", "unit": "user"}
    return results | {"headlines": [], "results": [one | {"estimates": epsilons}]}


def test_the_verdict_points_to_the_canaries() -> None:
    said = " ".join(report.verdict(quotable(canaries_alone())))
    assert "no statement about who was trained on" in said
    assert "What was found by one-shot is a section of its own." in said
    assert "canaries" not in " ".join(report.verdict(quotable(canaries_alone() | {"results": []})))


def test_where_the_canaries_looked_from_was_tested() -> None:
    page = report.render(read(canaries_alone()))
    (absent,) = re.findall(r"<dt>Vantages not tested</dt><dd>(.*?)</dd>", page)
    assert "secure aggregation" not in absent
    assert "labels" in absent


def test_every_kind_of_figure_is_explained_once_and_nothing_is_cut() -> None:
    page = report.render(read(canaries_alone()))
    (section,) = re.findall(r'<section id="canaries">.*?</section>', page, re.DOTALL)
    assert [cell for cell in re.findall(r"<td>(\w+)</td>", section) if cell.isalpha()] == [
        "measured", "proved", "claimed"
    ]  # fmt: skip
    note = "Proved: a lower bound, wrong at most as often as its confidence says. Claimed: what the accountant says"
    assert section.count(note) == 1


def test_every_section_stands_in_the_contents() -> None:
    for results in (builder.results(), canaries_alone()):
        page = report.render(read(results))
        contents = re.findall(r'<li><a href="#([\w-]+)">', page.split("</nav>")[0])
        assert contents == re.findall(r'<section id="([\w-]+)"', page)
