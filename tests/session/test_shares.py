"""Which part of the data is trained on if the configuration does not say it, and that it is said."""

from pathlib import Path

import numpy as np
import pytest

from fedaudit.config.schema import load_config, parse
from fedaudit.data.partition import FEW, SHARES, SHARES_OF_FEW
from fedaudit.errors import FedauditError
from fedaudit.session.prepare import stage
from fedaudit.session.run import run
from fedaudit.stats.plan import Sizes, smallest_visible_auc, smallest_visible_tpr
from fedaudit.types import Role
from tests import sites
from tests.worlds import silent


def shares(data: str, **federation: float) -> list[float]:
    config = parse({"data": {"name": data}, "federation": {"parties": 2, "rounds": 2} | federation})
    staged = stage(config)
    whole = staged.config.federation
    assert (whole.members, whole.nonmembers) == whole.shares
    return [round(float(staged.game.truth.mask(role).mean()), 2) for role in Role]


def test_where_records_are_few_most_are_trained_on() -> None:
    assert shares("breast-cancer") == [0.6, 0.15, 0.25]
    assert shares("digits") == [0.3, 0.3, 0.4]
    assert shares("breast-cancer", members=0.3) == [0.3, 0.15, 0.55]
    assert shares("breast-cancer", members=0.8) == [0.8, 0.15, 0.05]
    with pytest.raises(FedauditError, match=r"not set, they are 0.3 and 0.3 of these data"):
        shares("digits", members=0.8)


def test_people_count_where_they_are_known(tmp_path: Path) -> None:
    sites.table(tmp_path / "patients.csv", sites={"A": 1200, "B": 1200}, visits=4)
    data = {"name": "table", "path": str(tmp_path / "patients.csv"), "label": "stage", "impute": "median"}
    for keys, expected in (({"subject": "patient"}, SHARES_OF_FEW), ({"drop": ["patient"]}, SHARES)):
        assert stage(parse({"data": data | keys})).config.federation.shares == expected


def test_T6_training_on_more_of_few_costs_little_of_what_can_be_shown() -> None:
    """The reason for the default, by the sizes that can be seen."""
    for many in (300, 600, 900):
        assert many < FEW
        before, now = (
            Sizes(round(a * many), round(b * many), round((1 - a - b) * many)) for a, b in (SHARES, SHARES_OF_FEW)
        )
        assert smallest_visible_tpr(before, 0.01) is smallest_visible_tpr(now, 0.01) is None
        at_5 = [smallest_visible_tpr(sizes, 0.05) or np.inf for sizes in (before, now)]
        areas = [smallest_visible_auc(sizes) or np.inf for sizes in (before, now)]
        assert at_5[1] < at_5[0] + 0.1
        assert areas[1] < areas[0] + 0.015


def test_a_run_says_first_what_is_trained_on_and_goes_on_with_it(tmp_path: Path) -> None:
    path = sites.config(tmp_path, rounds=2)
    text = path.read_text().replace("members = 0.6\nnonmembers = 0.2\n", "")
    path.write_text(text)
    config, told = load_config(path, ('audit.attacks=["loss"]',)), list[str]()
    assert config.federation.members is None
    run(config, tmp_path / "out", silent, tell=told.append)
    assert told[0].startswith(
        "520 of 867 people at 4 parties are trained on (60 %); 130 are reported on as non-members"
    )
    run(config, tmp_path / "out", silent, tell=told.append)
    assert "already holds this run, finished" in told[-1]
    with pytest.raises(FedauditError, match=r"federation.members was 0.6 and is now 0.5"):
        run(load_config(path, ('audit.attacks=["loss"]', "federation.members=0.5")), tmp_path / "out", silent)


def test_a_hospital_with_hardly_any_outsiders_is_named(tmp_path: Path) -> None:
    """One of five patients ran with a single outsider, and nothing said it."""
    for smallest in (5, 60):
        path = sites.config(tmp_path)
        sites.table(tmp_path / "patients.csv", sites={"Aachen": 80, "Brno": 60, "Cork": 60, "Delft": smallest})
        told = [each for each in stage(load_config(path)).request.notices if each.code == "few-aside"]
        delft = {"party": "Delft", "evaluation": 1, "calibration": 1}
        assert [each.data["few"] for each in told] == [[delft]] * (smallest == 5)
