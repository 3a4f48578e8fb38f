"""A gate on the report that a party makes of itself: it passes, fails, and calls nothing safe that was not seen."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaudit.data.set_aside import set_aside
from fedaudit.integrations.loop import record
from fedaudit.integrations.party import Admitted, OwnShelf, Seat, SelfAudit
from fedaudit.results.document import load
from fedaudit.results.gate import FAILED, PASSED, UNDECIDED, Gate, judge, parse_rules
from fedaudit.types import Game, Records, State, Vantage
from tests.integrations.worlds import net, part, train

ROUNDS = 3


def by_heart() -> tuple[Records, Game]:
    """Labels that nobody can guess, so that whoever fits them learns them by heart."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1000, 64)).astype(np.float32), rng.integers(0, 10, 1000)
    return set_aside(x, y, party="north", seed=0)


def party(folder: Path) -> Path:
    """Its report, with the attacks that run by default."""
    audit = SelfAudit(net, logging.getLogger("tests"), rounds=ROUNDS)
    shelf, (records, game) = OwnShelf(), by_heart()
    torch.manual_seed(0)
    module = net()
    for index in range(1, ROUNDS + 1):
        before = {name: value.numpy().copy() for name, value in module.state_dict().items()}
        train(module, records, index, epochs=10)
        after: State = {name: value.numpy().copy() for name, value in module.state_dict().items()}
        seat = Seat(run="run", node="1", shelf=shelf, game=lambda: game, home=folder, folder=folder)
        admitted = audit.admit(seat, Vantage.SERVER, index, lambda watch, before=before: before)  # type: ignore[misc]
        assert isinstance(admitted, Admitted)
        assert audit.release(seat, admitted, index, lambda watch, after=after: after, elapsed=1.0) is None  # type: ignore[misc]
    return folder / "north"


def gate(report: Path, rule: str) -> Gate:
    return judge(report, parse_rules(rule))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return party(tmp_path_factory.mktemp("party"))


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("auc > 0.999", PASSED),
        ("auc[model=local] > 0.999", PASSED),
        ("auc[attack=*] > 0.999", PASSED),
        ("auc[attack=matched-filter, party=*] > 0.999", PASSED),
        ("tpr@0.01 > 0.999", PASSED),
        ("auc > 0.51", FAILED),
        ("auc[model=local] > 0.51", FAILED),
    ],
)
def test_a_gate_passes_and_fails_what_a_party_reports(whole: Path, rule: str, code: int) -> None:
    found = gate(whole, rule)
    assert found.exit_code == code, [finding for finding in found.findings if finding.verdict == "undecided"]


def test_a_cell_that_nobody_can_fill_is_none(whole: Path) -> None:
    """A party sees what it sent beside what it received, and never what a round came to."""
    cells = {(entry.attack, entry.model) for entry in load(whole).results if entry.party is None}
    of_both_ends = {"matched-filter", "round-gain", "gradient-cosine", "gradient-diff", "gradient-norm-all", "fusion"}
    assert {attack for attack, model in cells if model == "local"} >= of_both_ends
    assert not {attack for attack, model in cells if model == "global"} & of_both_ends
    assert ("loss", "global") in cells


def test_models_are_selected(whole: Path) -> None:
    both, local, other = (
        gate(whole, f"auc[attack=*{by}] > 0.999").findings for by in ("", ", model=local", ", model=global")
    )
    assert {finding.model for finding in local} == {"local"}
    assert {finding.model for finding in other} == {"global"}
    assert len(local) + len(other) == len(both)


def test_what_was_not_seen_stays_undecided(tmp_path: Path) -> None:
    """Local models in a run of which no update arrived are a cell that could have been filled."""
    module = net()
    with record(
        module, part("north")[1], out=tmp_path / "loop", rounds=2, attacks=["loss"], vantages=["server"]
    ) as audit:
        for index in (1, 2):
            train(module, part("north")[0], index)
            audit.observe(index, module)
    assert gate(tmp_path / "loop", "auc > 0.999").exit_code == UNDECIDED
