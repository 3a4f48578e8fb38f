"""The studies under examples/: their cells are those of the papers' axes, and a small one of each can be trained."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.config.schema import Config, parse
from fedaudit.config.study import load_study
from fedaudit.session.prepare import prepare
from tests.worlds import watch

EXAMPLES = Path(__file__).parents[2] / "examples"
# What each varies, and in how many cells.
STUDIES: dict[str, tuple[set[str], int]] = {
    "trajectory-study/parties": ({"audit.vantages", "federation.parties", "data.limit", "federation.seed"}, 48),
    "trajectory-study/skew": (
        {"federation.partition", "federation.beta", "federation.parties", "federation.seed"},
        24,
    ),
    "trajectory-study/model": ({"model", "federation.seed"}, 15),
    "trajectory-study/pictures": ({"data", "model", "federation.seed"}, 15),
    "trajectory-study/fedsgd": ({"federation", "federation.seed"}, 9),
    "trajectory-study/calibration": (
        {"audit.vantages", "audit.attacks", "audit.calibration.records", "federation.seed"},
        15,
    ),
    "trajectory-study/rounds": ({"federation.rounds", "federation.seed"}, 12),
    "label-study/rounds": ({"federation.rounds", "federation.seed"}, 12),
    "label-study/parties": ({"federation.parties", "data.limit", "federation.seed"}, 27),
    "label-study/epochs": ({"federation.local_epochs", "federation.seed"}, 12),
    "label-study/queries": ({"audit.tear.queries", "federation.seed"}, 12),
    "subject-study/pooled": ({"federation.split_subjects", "federation.parties", "federation.seed"}, 9),
    "subject-study/records": ({"federation.fresh", "federation.rounds", "federation.seed"}, 18),
    "subject-study/privacy": ({"defences", "federation.seed"}, 30),
    "subject-study/sampling": ({"data.sampling", "data.data_seed, federation.seed"}, 6),
    "subject-study/dimensions": ({"data.dimensions", "data.data_seed, federation.seed"}, 12),
    "subject-study/layers": ({"model.hidden", "data.data_seed, federation.seed"}, 18),
    "subject-study/sizes": ({"data.subjects_per_user", "data.items_per_user", "data.data_seed, federation.seed"}, 24),
}
SECTIONS = (
    "data",
    "federation",
    "model",
    "defences",
    "model.hidden",
    "audit.vantages",
    "audit.attacks",
)  # read as objects and tuples
# Keys that make any cell a small one. What the study varies stays as it is, but for the rounds.
SMALL: dict[str, dict[str, dict[str, Any]]] = {
    "trajectory-study": {"data": {"limit": 2000}, "federation": {"rounds": 2}},
    "label-study": {"data": {"limit": 500}, "federation": {"rounds": 2}, "audit": {"tear": {"queries": 50, "own": 40}}},
    "subject-study": {"federation": {"rounds": 2, "local_epochs": 1}},
}


def small(name: str, config: Config) -> Config:
    raw = config.as_dict()
    for section, keys in SMALL[name.split("/")[0]].items():
        raw[section] |= {key: value for key, value in keys.items() if key != "local_epochs" or key in raw[section]}
    if name.startswith("subject-study") and raw["data"]["name"] == "baskets":
        raw["data"]["limit"] = 4000
    elif name.startswith("subject-study"):
        raw["data"] |= {"dimensions": 50, "items_per_user": 500}
    return parse(raw)


def test_all_that_are_there_are_known() -> None:
    there = {
        f"{path.parent.name}/{path.stem}"
        for path in EXAMPLES.glob("*-study/*.toml")
        if path.stem not in ("base", "households", "configuration-c")
    }
    assert there == {*STUDIES, "subject-study/study", "subject-study/two-cores"}


@pytest.mark.parametrize("name", STUDIES)
def test_the_cells_are_what_the_axis_says(name: str) -> None:
    study, (varied, cells) = load_study(EXAMPLES / f"{name}.toml"), STUDIES[name]
    assert set(study.grid) == varied
    assert len(study.cells) == len({cell.name for cell in study.cells}) == cells
    for cell in study.cells:  # every cell has the values that its title names
        for keys, value in cell.overrides.items():
            for key in keys.split(", "):
                found: Any = cell.config
                for part in key.split("."):
                    found = getattr(found, part)
                assert key in SECTIONS or found == value


@pytest.mark.parametrize("name", STUDIES)
def test_a_small_cell_can_be_trained(name: str) -> None:
    cells = load_study(EXAMPLES / f"{name}.toml").cells
    cell = next((cell for cell in cells if cell.config.defences), cells[0])
    audit = watch(prepare(small(name, cell.config)))
    assert audit.failed == {}
    assert {result.attack for result in audit.results} >= set(cell.config.audit.attacks or ())


def test_the_page_lists_them() -> None:
    page = (EXAMPLES.parent / "docs" / "studies.md").read_text(encoding="utf-8")
    assert [name for name in STUDIES if f"`{name}.toml`" not in page] == []
