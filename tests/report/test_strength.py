"""The panel that says where a federation lies on the map of the matched filter."""

import pytest

from fedaudit.report import html, panels
from tests.report import builder


@pytest.mark.parametrize(("weights", "found"), [(500, 0), (40, 1), (39.9, 2), (12, 3), (5, 4), (2.5, 5), (0.1, 6)])
def test_a_place_on_the_map_is_that_of_the_next_smaller_measured_one(weights: float, found: int) -> None:
    assert panels.found_there(weights) == panels.MAP[found][1]


def test_the_panel_is_there_where_the_filter_looked_and_only_there() -> None:
    given = builder.results()
    assert panels.strength(builder.quotable(given)) is None
    given["run"]["weights_per_member"] = {"local": 196.4}
    given["results"][0] |= {"attack": "matched-filter", "layer": "1"}
    panel = panels.strength(builder.quotable(given))
    assert panel is not None
    ((_, table),) = panel.tables
    assert table.rows == [("one party's update", "196", "97 to 100 %")]
    assert "Why the strongest attack works here" in html.render(builder.read(given))
