"""The charts of the page: well-formed, inside their frames, and true to the numbers."""

import re
from xml.etree import ElementTree

import pytest

from fedaudit.report import figures
from tests.report import builder
from tests.report.test_report import page, render, svgs


@pytest.mark.parametrize("parties, attacks", [(1, 1), (4, 4), (30, 3), (31, 3), (100, 8)])
def test_charts_are_well_formed_and_stay_in_their_frame(parties: int, attacks: int) -> None:
    drawn = svgs(render(builder.results(parties, attacks)))
    assert drawn
    for svg in drawn:
        assert [child.tag for child in svg[:2]] == ["title", "desc"]
        assert all(child.text for child in svg[:2])
        _, _, width, height = map(float, svg.attrib["viewBox"].split())
        for mark in svg.iter():
            for key, most in (("x", width), ("x1", width), ("x2", width), ("cx", width), ("y", height), ("cy", height)):
                assert 0 <= float(mark.get(key, 0)) <= most, ElementTree.tostring(mark)
            for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", mark.get("d", "")):
                assert 0 <= float(x) <= width
                assert 0 <= float(y) <= height
            if mark.tag == "text":
                assert_inside(mark, width)


def assert_inside(mark: ElementTree.Element, width: float) -> None:
    """A label's estimated extent lies within the chart."""
    if "rotate" in mark.get("transform", ""):
        return
    x, wide, shape = float(mark.attrib["x"]), 7.0 * len(mark.text or ""), mark.get("class", "")
    before = wide / 2 if "middle" in shape or "label" in shape else 0 if "start" in shape else wide
    assert x - before >= -1, ElementTree.tostring(mark)
    assert x - before + wide <= width + 1, ElementTree.tostring(mark)


def test_a_log_axis_takes_zeros_at_its_floor() -> None:
    results = builder.results()
    for entry in results["results"]:
        if "roc" in entry.get("curves", {}):
            curve = entry["curves"]["roc"]
            curve |= {"x": [0.0, 0.0, 0.001, 0.1, 1.0], "value": [0.0, 0.002, 0.01, 0.3, 1.0]}
            curve |= {"low": [0.0, 0.0, 0.0, 0.2, 0.9], "high": [0.01, 0.01, 0.03, 0.4, 1.0]}
    section = render(results).split('id="roc"')[1].split("</section>")[0]
    (svg,) = svgs(section)
    floor = next(float(m.attrib["y1"]) for m in svg if m.get("class") == "axis")
    (first, *_) = [m.attrib["d"] for m in svg if m.get("class") == "line s1"]
    points = [tuple(map(float, p)) for p in re.findall(r"([\d.]+) ([\d.]+)", first)]
    left = float(next(m.attrib["x1"] for m in svg if m.get("class") == "axis"))
    assert points[0] == (left, floor)
    assert points[1][0] == left
    assert points[1][1] < floor
    assert "≤ 0.1 %" in [m.text for m in svg.iter("text")]


def test_numbers_out_of_range_and_curves_without_an_end_are_still_drawn() -> None:
    """A file that somebody edited is shown as it is."""
    results = builder.results()
    for entry in results["results"]:
        entry["estimates"]["auc"] |= {"value": -0.2, "low": -0.3}
        entry["estimates"]["tpr@0.01"] = builder.tpr(0.1) | {"value": -0.2, "low": -0.3}
        for curve in entry.get("curves", {}).values():
            curve["value"][0] = -1.0
            curve["low"] = curve["low"][:5]
    assert "-20.0" in render(results)
    for entry in results["results"]:
        for curve in entry.get("curves", {}).values():
            curve["x"] = []
    assert "rounds" not in page(results).text


def test_axes_place_values() -> None:
    log = figures.log_axis(0.001, 1, "", percent=True)
    assert [log.place(v) for v in (0.0, -1.0, 0.001, 1.0, 5.0)] == [0, 0, 0, 1, 1]
    assert log.place(0.01) == pytest.approx(1 / 3)
    assert [name for _, name in log.ticks] == ["0.1 %", "1 %", "10 %", "100 %"]
    plain = figures.linear_axis([0.5, None, 0.93], "", percent=False, include=[0.5], most=1.0)
    assert plain.low <= 0.5
    assert plain.high == pytest.approx(1.0)
    assert all(plain.low - 1e-9 <= t <= plain.high + 1e-9 for t, _ in plain.ticks)


def test_a_gap_breaks_the_line_and_a_lone_round_is_a_dot() -> None:
    x = figures.round_axis([1.0, 2.0, 3.0, 4.0], "round")
    y = figures.linear_axis([0.0, 1.0], "", percent=True, include=[0.0], most=1.0)
    numbers: list[float | None] = [0.2, 0.3, None, 0.4]
    series = figures.PlottedSeries("a", "s1", x=[1, 2, 3, 4], value=numbers, low=numbers, high=numbers, tips=["t"] * 4)
    svg = ElementTree.fromstring(figures.lines("t", "d", [series], x, y, [(1, 0.5), (4, 0.5)]))
    kinds = [m.get("class") for m in svg]
    assert kinds.count("line s1") == 1
    assert kinds.count("dot s1") == 1
    hits = [m for m in svg if m.get("class") == "hit"]
    assert len(hits) == 4
    assert sum(float(m.attrib["width"]) for m in hits) == pytest.approx(
        figures.WIDTH - figures.LEFT - figures.RIGHT, 1e-4
    )


def test_many_parties_are_ranked_few_are_named() -> None:
    named = render(builder.results(30, 1)).split('id="parties"')[1].split("</section>")[0]
    assert 'class="chart intervals"' in named
    assert ">party-29</text>" in named
    ranked = render(builder.results(31, 1)).split('id="parties"')[1].split("</section>")[0]
    assert 'class="chart scatter"' in ranked
    assert 'class="chart histogram"' in ranked
    assert ">party-29</text>" not in ranked
    assert "party-29" in ranked  # in the table and under the pointer
