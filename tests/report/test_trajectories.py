"""Members and others over the rounds, on the page: what is drawn, and what the last round is said to show."""

import re
from pathlib import Path

import pytest

from fedaudit import report
from fedaudit.report.sections import glossary
from fedaudit.report.trajectories import section
from fedaudit.report.values import cleaned
from fedaudit.results.document import load
from tests.report import builder
from tests.report.builder import Json, quotable

STORED = Path(__file__).parent.parent / "results" / "stored"


def said(one: Json) -> str:
    results = builder.results()
    results["trajectories"] = [one]
    ((panel,),) = (part.panels for part in section(quotable(results)))
    return " ".join(panel.sentences)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (
            0.01,
            0.09,
            "they are surer of members than of others on average (+0.050, between +0.010 and +0.090 with 95 %",
        ),
        (-0.01, 0.11, "it is not settled that members and others differ"),
        (-0.09, -0.01, "they are less sure of members than of others"),
    ],
)
def test_what_is_said_of_the_last_round_follows_its_interval(low: float, high: float, says: str) -> None:
    one = builder.trajectory("global", 0.05)
    for name, end in (("low", low), ("high", high), ("value", (low + high) / 2)):
        one["apart"][name][-1] = end
    assert says in said(one)
    assert said(one).startswith("Global models: after round 40 ")


def test_a_difference_below_zero_is_drawn_below_the_line() -> None:
    results = builder.results()
    for one in results["trajectories"]:
        for name in ("value", "low", "high"):
            one["apart"][name] = [-value for value in one["apart"][name]]
    ((panel,),) = (part.panels for part in section(quotable(results)))
    svg = str(panel.figures[-1].svg)
    zero = float(re.search(r'class="chance" d="M[\d.]+ ([\d.]+)', svg)[1])  # type: ignore[index]
    (line, *_) = re.findall(r'class="line s1" d="M(.*?)"', svg)
    assert float(line.split("L")[-1].split()[1]) > zero + 20  # y grows downwards


def test_both_sides_and_the_gap_are_drawn_with_their_numbers_beside() -> None:
    ((panel,),) = (part.panels for part in section(quotable(builder.results())))
    assert [len(figure.table.rows) for figure in panel.figures] == [80, 80, 80]
    assert "no interval" in panel.figures[0].caption
    assert "1,800 members, 4,100 others" in panel.figures[0].caption


def test_the_summary_leaves_them_to_the_report() -> None:
    assert 'id="trajectories"' in report.render(builder.read(builder.results()))
    assert 'id="trajectories"' not in report.render(builder.read(builder.results()), brief=True)


@pytest.mark.parametrize("stored", sorted(STORED.glob("*.json")), ids=lambda path: path.stem)
def test_every_attack_of_a_real_audit_has_a_sentence_on_the_page(stored: Path) -> None:
    results = cleaned(load(stored))
    table = glossary(results)
    assert table is not None
    assert {entry.attack for entry in results.results} <= {name for name, _ in table.rows}
    assert [about for _, about in table.rows if not re.fullmatch(r"[A-Z].{10,}[.?]", about)] == []
