"""Attacks by labels on a stored trace: as in a run, from what was stored or from the models."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit import Auditor
from fedaudit.config.schema import Config
from fedaudit.defences import Defence
from fedaudit.errors import FedauditError
from fedaudit.results.document import Document
from fedaudit.session import assemble
from fedaudit.session.replay import replay
from fedaudit.session.run import rounds, run
from tests.audit.test_tear import asking
from tests.worlds import silent

pytestmark = pytest.mark.usefixtures("few_trees")
FLIP: list[dict[str, Any]] = [{"name": "tests.session.test_replay_labels:flip", "fills": ["serve"]}]


def flip(_setting: Any) -> Defence:
    """Serves the least likely label as the most likely one."""
    return Defence("flip", serve=lambda task, state, outputs: -outputs)


def trained(
    out: Path, attacks: list[str], keep: str = "snapshots", defences: list[dict[str, Any]] | None = None
) -> Document:
    plain = asking(attacks, federation={"rounds": 2}).as_dict()
    plain["audit"]["keep"], plain["defences"] = keep, defences or []
    return run(Config.model_validate(plain), out, silent, tell=lambda line: None)


def found(document: Document) -> dict[str, Any]:
    assert not document.degraded
    pooled = [r for r in document.results if r.party is None and r.attack != "blind"]
    return {r.attack: (r.estimates, r.cost.queries) for r in pooled}


@pytest.mark.parametrize(("stored", "asked"), [("boundary", "tear"), ("gap", "gap-rounds")])
def test_what_only_the_last_round_has_is_measured_again_in_every_round(stored: str, asked: str, tmp_path: Path) -> None:
    trained(tmp_path / "run", [stored])
    live = trained(tmp_path / "live", [asked])
    again = replay(tmp_path / "run", [asked], tmp_path / "again", silent)
    assert found(again) == found(live)


@pytest.mark.parametrize(("stored", "asked"), [("boundary", "tear"), ("gap", "gap-rounds")])
def test_what_only_the_last_round_has_does_not_feed_an_attack_on_all(stored: str, asked: str, tmp_path: Path) -> None:
    live = trained(tmp_path / "run", [stored], keep="signals")
    with pytest.raises(FedauditError, match="of every round") as refused:
        replay(tmp_path / "run", [asked], tmp_path / "refused", silent)
    assert refused.value.code == "not-kept"
    assert found(replay(tmp_path / "run", [stored], tmp_path / "again", silent)) == found(live)


def test_a_search_of_stored_models_is_told_and_given_as_much_time_as_a_live_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "run", ["gap", "boundary"])
    monkeypatch.setattr(assemble, "speed", lambda *_: 0.5)
    given: list[float] = []
    made = Auditor.__init__

    def making(auditor: Auditor, task: Any, game: Any, settings: Any) -> None:
        given.append(settings.search.seconds)
        made(auditor, task, game, settings)

    monkeypatch.setattr(Auditor, "__init__", making)
    again = replay(tmp_path / "run", ["tear"], tmp_path / "again", silent)
    assert given[-1] > 3600
    assert len(times := [line for line in again.notices if "labels a second" in line]) == 1
    assert "at 0 labels a second" in times[0]


def test_an_interrupted_search_is_told_once(tmp_path: Path) -> None:
    """The notices of the run come with its trace; the time that it was told then is told anew."""
    plain = asking(["boundary"], federation={"rounds": 3}).as_dict()
    plain["audit"]["keep"] = "snapshots"

    def two(prepared: Any, *given: Any) -> Any:
        yield from islice(rounds(prepared, *given), 2)

    run(Config.model_validate(plain), tmp_path / "run", silent, tell=lambda line: None, engine=two)
    again = replay(tmp_path / "run", [], tmp_path / "again", silent)
    assert len([line for line in again.notices if "labels a second" in line]) == 1


def test_too_few_records_of_its_own_are_refused_before_the_rounds_are_read(tmp_path: Path) -> None:
    plain = asking(["gap"], federation={"rounds": 2, "parties": 12}).as_dict()
    plain["audit"] |= {"keep": "snapshots", "vantages": ["client"], "attacks": ["loss"]}
    run(Config.model_validate(plain), tmp_path / "run", silent, tell=lambda line: None)
    with pytest.raises(FedauditError, match="learns from the first party's own records"):
        replay(tmp_path / "run", ["tear-deepfool"], tmp_path / "refused", silent)


def test_stored_models_are_asked_through_the_defence_that_served_them(tmp_path: Path) -> None:
    trained(tmp_path / "run", ["gap"], defences=FLIP)
    live = trained(tmp_path / "live", ["gap", "gap-rounds", "boundary"], defences=FLIP)
    again = replay(tmp_path / "run", ["gap", "gap-rounds", "boundary"], tmp_path / "again", silent, trust_code=True)
    assert found(again) == found(live)
