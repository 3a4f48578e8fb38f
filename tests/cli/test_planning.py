"""The tables of `fedaudit plan`."""

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from fedaudit.cli.commands import app
from fedaudit.cli.planning import plan, plan_of
from fedaudit.cli.preparing import plan as command
from fedaudit.config.schema import load_config, parse
from fedaudit.errors import FedauditError
from fedaudit.session.prepare import prepare, stage
from fedaudit.types import Estimate
from tests import sites
from tests.worlds import watch


def test_one_table_for_one_party_and_round() -> None:
    ((title, rows),) = plan(3000, 3600, 3000).tables
    assert "one threshold" in title
    assert [row.cells()[:4] for row in rows[:3]] == [
        ("TPR at FPR 0.01", "100", "368", "437"),
        ("TPR at FPR 0.001", "1,000", "3,688", "4,380"),
        ("TPR at FPR 0.0001", "10,000", "36,887", "43,819"),
    ]
    assert rows[0].cells()[4].startswith("TPR 2.")
    assert rows[1].cells()[4].startswith("none")
    assert rows[3].cells()[4].startswith("AUC 0.52")


def test_parties_and_rounds_add_tables() -> None:
    titles = [title for title, _ in plan(600, 800, 800, [0.05], rounds=40, parties=4).tables]
    assert len(titles) == 5
    assert sum("40 rounds" in title for title in titles) == 2
    assert titles[-1] == "One party alone"


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"fprs": [0.0]}, {"parties": 5000}])
def test_wrong_numbers_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(FedauditError, match="bad-value"):
        plan(3000, 4000, 3000, **wrong)  # type: ignore[arg-type]


def test_the_old_meaning_of_nonmembers_is_refused_with_the_new_names() -> None:
    """--nonmembers meant calibration records, and `nonmembers` in a configuration those that are reported on."""
    with pytest.raises(FedauditError, match="--calibration is missing") as caught:
        command(None, members=100, nonmembers=1000)
    assert "--nonmembers and --calibration" in str(caught.value)
    with pytest.raises(FedauditError, match="nothing says how large the audit is to be"):
        command(None)


def test_numbers_and_a_configuration_are_refused_together(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="Leave out the numbers"):
        command(tmp_path / "my.toml", members=100)


def sizes(estimate: Estimate | None) -> tuple[int, int]:
    assert estimate is not None
    return estimate.n_pos, estimate.n_neg


@pytest.mark.parametrize("visits", [1, 3])
def test_a_plan_counts_what_the_run_counts(visits: int, tmp_path: Path) -> None:
    """On unequal sites the plan took the smallest one four times over: 288 members of local models, and the run had
    520. An attack that is fitted spends half of the calibration records."""
    settings = load_config(sites.config(tmp_path, rounds=2, visits=visits), ('audit.attacks=["loss","fusion"]',))
    planned, audit = plan_of(stage(settings)), watch(prepare(settings))
    assert [each.party for each in planned.counts] == [None, *sorted(sites.SITES)]
    for each in planned.counts:
        run = [r for r in audit.results if (r.attack, r.party) == ("loss", each.party)]
        assert {r.model for r in run} == {"global", "local"}
        for result in run:
            assert sizes(result.estimates["auc"]) == (each.members, each.evaluation)
            shares = [e for name, e in result.estimates.items() if name.startswith("tpr@")]
            assert {e.n_cal for e in shares} == {each.calibration} or result.model == "local"
        assert (each.people != (each.members, each.evaluation, each.calibration)) == (visits > 1)
    for title, rows in planned.tables:
        model = "local" if title.startswith("Local") else "global"
        attack = "fusion" if "fusion" in title else "loss"
        (found,) = [r for r in audit.results if (r.attack, r.model, r.party) == (attack, model, None)]
        (area,) = [row for row in rows if row.risk == "auc"]
        assert (area.smallest_visible is not None) == (found.estimates["auc"].low is not None)
        if visits == 1 and "fusion" in title:
            left = int(title.split("fitted on half, ")[1].split()[0])
            assert left == found.estimates["tpr@0.01"].n_cal


def test_the_first_sentence_says_what_can_be_shown_and_what_to_do(tmp_path: Path) -> None:
    path = sites.config(tmp_path, rounds=2)
    first, *rest = CliRunner().invoke(app, ["plan", str(path)]).stdout.split("\n\n")
    told = " ".join(first.split())
    assert told.startswith("With 867 people at 4 parties (520 trained on, 173 to report on, 174 to set thresholds) ")
    assert "no TPR at 1 % FPR and an AUC of 0.57 or more from the global models" in told
    rate = re.search(r"Set audit.fpr = \[(\S+)\]: at \S+ % it can show a TPR of (\S+) % or more", told)
    assert rate is not None
    tables = "".join(rest).split("Local models")
    assert len(tables) > 1
    assert all(f"TPR at FPR {rate[1]}" in table for table in tables[1:])  # the advised rate has a row of its own
    asked = plan_of(stage(load_config(path, (f"audit.fpr=[{rate[1]}]",)))).first
    assert f"a TPR of {rate[2]} % or more at " in asked
    assert "Set audit.fpr" not in asked


SMALL = """
[data]
name = "digits"
[federation]
parties = 2
[model]
hidden = [16]
[audit]
attacks = ["loss"]
fpr = [0.01]
"""


def test_a_plan_takes_the_same_changes_as_a_run(tmp_path: Path) -> None:
    """`plan --set` was unknown."""
    for name, text in (("two", SMALL), ("three", SMALL.replace("= 2", "= 3").replace("[0.01]", "[0.1]"))):
        (tmp_path / f"{name}.toml").write_text(text)

    def planned(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["plan", *arguments])

    two, three = (str(tmp_path / f"{name}.toml") for name in ("two", "three"))
    changed = planned(two, "--set", "federation.parties=3", "--set", "audit.fpr=[0.1]")
    assert changed.exit_code == 0
    assert changed.stdout == planned(three).stdout != planned(two).stdout
    wrong = planned(two, "--set", "federation.roundz=3").exception
    assert "Did you mean 'rounds'" in str(wrong)
    assert "Give CONFIG" in str(planned("--members", "9", "--set", "federation.parties=3").exception)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ((), "In federations of this shape with digits it is expected to find, of the members at 1 % FPR, "
             "1 to 3 % from the global models (any party) and 1 to 4 % from a party's own models (the server)"),
        (("federation.secagg=true",), "1 to 3 % from the global models (any party): nine of ten"),
        (("model.projection=8",), "is not known: with model.projection nothing was measured"),
        (("federation.rounds=50",), "is not known: 5 to 40 rounds were measured, and here are 50"),
        (("federation.participation=0.5",), "is not known: federations were measured in which all parties take part"),
        (("model.hidden=[16, 512, 16]",), "is not known: models were measured whose first layer is the largest"),
        (('defences=[{name = "update-rank", rank = 2}]',), "is not known: with update-rank nothing was measured"),
        (("model.hidden=[16, 16, 16, 16, 16]",), "is not known: models were measured that have most of their weights"),
    ],
)  # fmt: skip
def test_a_plan_says_what_the_map_expects(changes: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    sets = [part for change in changes for part in ("--set", change)]
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "small.toml"), *sets])
    told = " ".join(done.stdout.split())
    assert "Weights in the layer that the matched filter looks at, for each member: " in told
    assert says in told


def test_a_plan_for_people_does_not_quote_the_map_of_records(tmp_path: Path) -> None:
    (tmp_path / "people.toml").write_text("""
[data]
name = "baskets"
limit = 2000
[federation]
partition = "subjects"
member_subjects = 0.4
nonmember_subjects = 0.3
""")
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "people.toml")])
    assert done.exit_code == 0
    assert "matched filter looks at" not in done.stdout


def test_records_of_a_few_people_show_nothing_and_the_plan_says_so(tmp_path: Path) -> None:
    """As the run then does: eight people a side are needed for an interval."""
    rng = np.random.default_rng(0)
    for people, nothing in ((15, True), (60, False)):
        whose = np.array([f"p{i % people}" for i in range(10 * people)])
        x, y = rng.normal(size=(10 * people, 5)).astype(np.float32), rng.integers(0, 2, 10 * people)
        np.savez(tmp_path / "a.npz", x=x, y=y, subject=whose)
        raw = {"data": {"name": "npz", "path": str(tmp_path / "a.npz")}, "federation": {"parties": 2, "rounds": 2}}
        planned = plan_of(stage(parse(raw | {"audit": {"attacks": ["loss"], "unit": "record"}})))
        assert ("can show nothing: it takes 8 people a side" in planned.first) == nothing
        for _, rows in planned.tables:
            assert (rows[-1].smallest_visible is None) == nothing
            assert (rows[-1].reason == "it takes 8 people a side") == nothing


def test_a_plan_says_first_who_is_not_asked_about(tmp_path: Path) -> None:
    """`With 83 people` was said of 697, and not that `fresh` leaves out whoever has a single record."""
    rng = np.random.default_rng(0)
    subject = np.array([f"p{i}" for i in [*range(300), *np.repeat(np.arange(300, 500), 4)]])
    np.savez(tmp_path / "visits.npz", x=rng.normal(size=(1100, 4)), y=rng.integers(0, 2, 1100), subject=subject)
    config = {
        "data": {"name": "npz", "path": str(tmp_path / "visits.npz"), "subject_key": "subject"},
        "federation": {"parties": 2, "rounds": 2, "partition": "subjects"},
        "audit": {"unit": "subject", "fpr": [0.2]},
    }
    first = plan_of(stage(parse(config))).first
    assert first.startswith("300 of 500 people have a single record: ")
    assert "federation.fresh = 0 asks about everybody" in first
    assert " With 200 people at 2 parties " in first
    everybody = plan_of(stage(parse(config, ("federation.fresh=0",)))).first
    assert everybody.startswith("With 500 people at 2 parties ")
