"""Whoever watches the folder of a party sees its rounds as they happen, and an end where there is one."""

import logging
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fedaudit.integrations.party import Admitted, OwnShelf, Refused, Seat, SelfAudit, Shelf
from fedaudit.results.document import RESULTS, load
from fedaudit.results.running import Follower, kind_of
from fedaudit.types import State, Vantage
from tests.command import fedaudit
from tests.integrations.worlds import net, part, train

PLANNED = 4


def states(rounds: int) -> list[tuple[State, State]]:
    torch.manual_seed(0)
    module = net()
    found = [{name: value.numpy().copy() for name, value in module.state_dict().items()}]
    for index in range(1, rounds + 1):
        train(module, part("north")[0], index)
        found.append({name: value.numpy().copy() for name, value in module.state_dict().items()})
    return [*pairwise(found)]


def take_part(
    audit: SelfAudit, folder: Path, run: str, shelf: Shelf, index: int, before: State, after: State
) -> object:
    game = part("north")[1]
    seat = Seat(run=run, node="1", shelf=shelf, game=lambda: game, home=folder / "home", folder=folder)
    admitted = audit.admit(seat, Vantage.SERVER, index, lambda watch: before)
    if not isinstance(admitted, Admitted):
        return admitted
    return audit.release(seat, admitted, index, lambda watch: after, elapsed=1.0)


def party(**options: str) -> SelfAudit:
    return SelfAudit(net, logging.getLogger("tests"), rounds=PLANNED, attacks=["loss"], halt_if=options.get("halt_if"))


def test_a_party_in_round_two_of_four_has_not_ended(tmp_path: Path) -> None:
    audit, shelf, follower = party(), OwnShelf(), Follower(tmp_path / "north")
    for index, (before, after) in enumerate(states(PLANNED), start=1):
        assert take_part(audit, tmp_path, "first", shelf, index, before, after) is None
        seen = follower.look()
        assert (seen.newest, seen.planned, seen.parties) == (index, PLANNED, ())
        assert (tmp_path / "north" / RESULTS).is_file() == (index > 1)  # there from round 2 on, and no end
        assert (seen.state, seen.why) == (("running", "") if index < PLANNED else ("ended", "complete"))
        assert {(risk.attack, risk.metric) for risk in seen.rounds[-1].risks} >= {("loss", "auc")}
    assert kind_of(tmp_path / "north") == "run"
    watched = fedaudit("watch", "north", cwd=tmp_path)
    assert watched.returncode == 0
    assert f"round {PLANNED} of {PLANNED}: server, local: loss auc" in watched.stdout
    assert "ended: complete" in watched.stdout


def test_another_run_in_the_same_folder_begins_again(tmp_path: Path) -> None:
    rounds = states(PLANNED)
    for run, many in (("first", PLANNED), ("second", 2)):
        audit, shelf = party(), OwnShelf()
        for index, (before, after) in enumerate(rounds[:many], start=1):
            take_part(audit, tmp_path, run, shelf, index, before, after)
    seen = Follower(tmp_path / "north").look()
    assert ([round.round for round in seen.rounds], seen.state) == ([1, 2], "running")


def test_a_round_in_which_the_process_was_killed_never_left_and_the_report_says_so(tmp_path: Path) -> None:
    """Killed in its second round; the node comes back for the third."""
    rounds, game = states(PLANNED), part("north")[1]
    take_part(party(), tmp_path, "first", OwnShelf(), 1, *rounds[0])
    killed = Seat(run="first", node="1", shelf=OwnShelf(), game=lambda: game, home=tmp_path, folder=tmp_path)
    assert isinstance(party().admit(killed, Vantage.SERVER, 2, lambda watch: rounds[1][0]), Admitted)
    for index in (3, 4):  # restarted before each
        assert take_part(party(), tmp_path, "first", OwnShelf(), index, *rounds[index - 1]) is None
    told = [(one.code, one.data.get("round")) for one in load(tmp_path / "north").told]
    assert ("node-restarted", 1) in told
    assert [round for code, round in told if code == "never-left"] == [2]


def test_a_party_that_sends_nothing_any_more_has_ended(tmp_path: Path) -> None:
    audit, shelf = party(halt_if="auc > 0.0001"), OwnShelf()
    (before, after), *_ = states(1)
    assert isinstance(take_part(audit, tmp_path, "first", shelf, 1, before, after), Refused)
    seen = Follower(tmp_path / "north").look()
    assert (seen.state, seen.why, seen.newest) == ("ended", "nothing is sent since round 1", 1)


def test_a_round_that_left_without_an_audit_is_not_said_to_have_stayed(tmp_path: Path) -> None:
    """Its update could not be read as the model, and the party has no limit: it left. The node is then restarted."""
    rounds = states(PLANNED)
    take_part(party(), tmp_path, "first", OwnShelf(), 1, *rounds[0])
    assert take_part(party(), tmp_path, "first", OwnShelf(), 2, rounds[1][0], {}) is None
    take_part(party(), tmp_path, "first", OwnShelf(), 3, *rounds[2])
    take_part(party(), tmp_path, "first", OwnShelf(), 4, *rounds[3])
    told = {one.code for one in load(tmp_path / "north").told}
    assert "node-restarted" in told
    assert "never-left" not in told


@pytest.mark.parametrize(("elapsed", "cheaper"), [(1e-6, True), (1e6, False)])
def test_the_first_round_says_what_the_audit_costs_and_what_makes_it_cheaper(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, elapsed: float, cheaper: bool
) -> None:
    """With four local epochs a round; the second round says nothing of it."""
    caplog.set_level(logging.INFO)
    audit = SelfAudit(net, logging.getLogger("tests"), rounds=PLANNED, attacks=["loss"], local_epochs=4)
    shelf, game = OwnShelf(), part("north")[1]
    for index, (before, after) in enumerate(states(2), start=1):
        seat = Seat(run="run", node="1", shelf=shelf, game=lambda: game, home=tmp_path, folder=tmp_path)
        admitted = audit.admit(seat, Vantage.SERVER, index, lambda watch, before=before: before)  # type: ignore[misc]
        assert isinstance(admitted, Admitted)
        audit.release(seat, admitted, index, lambda watch, after=after: after, elapsed=elapsed)  # type: ignore[misc]
    said = [record.getMessage() for record in caplog.records if "the audit of this round took" in record.getMessage()]
    assert len(said) == 1
    assert f"local epochs of {elapsed / 4:.3g} s" in said[0]
    assert ("max_cost=1" in said[0]) == cheaper


def test_a_disk_that_is_full_costs_the_watchers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedaudit.integrations.party.journal.record", full)
    audit, shelf = party(), OwnShelf()
    (before, after), *_ = states(1)
    assert take_part(audit, tmp_path, "first", shelf, 1, before, after) is None
    assert "is not told" in caplog.text


@pytest.mark.parametrize(("halt_if", "each"), [(None, 1.0), ("auc > 0.9", None)])
def test_what_protects_is_not_left_out_for_its_cost(tmp_path: Path, halt_if: str | None, each: float | None) -> None:
    audit, game = SelfAudit(net, logging.getLogger("tests"), rounds=PLANNED, halt_if=halt_if), part("north")[1]
    seat = Seat(run="run", node="1", shelf=OwnShelf(), game=lambda: game, home=tmp_path)
    admitted = audit.admit(seat, Vantage.SERVER, 1, lambda watch: states(1)[0][0])
    assert isinstance(admitted, Admitted)
    assert admitted.watch.auditor.settings.most.each == each
