"""The tables of `fedaudit plan`."""

import pytest

from fedaudit.cli.planning import plan
from fedaudit.errors import FedauditError


def test_one_table_for_one_party_and_round() -> None:
    ((title, rows),) = plan(3000, 3600, 3000)
    assert "one threshold" in title
    assert [row[:3] for row in rows[:3]] == [
        ("TPR at FPR 0.01", "100", "368"),
        ("TPR at FPR 0.001", "1,000", "3,688"),
        ("TPR at FPR 0.0001", "10,000", "36,887"),
    ]
    assert rows[0][3].startswith("TPR 2.")
    assert rows[1][3] == "none: 88 too few"
    assert rows[3][3].startswith("AUC 0.52")


def test_parties_and_rounds_add_tables() -> None:
    titles = [title for title, _ in plan(3000, 4000, 3000, [0.05], rounds=40, parties=4)]
    assert len(titles) == 5
    assert sum("40 rounds" in title for title in titles) == 2
    assert titles[-1] == "One party alone"


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"fprs": [0.0]}, {"parties": 5000}])
def test_wrong_numbers_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(FedauditError, match="bad-value"):
        plan(3000, 4000, 3000, **wrong)  # type: ignore[arg-type]
