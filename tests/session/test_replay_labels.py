"""Attacks by labels on a stored trace: as in a run, from what was stored or from the models."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.config.schema import Config
from fedaudit.defences import Defence
from fedaudit.errors import FedauditError
from fedaudit.results.document import Document
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from tests.audit.test_tear import asking
from tests.worlds import silent

FLIP: list[dict[str, Any]] = [{"name": "tests.session.test_replay_labels:flip", "fills": ["serve"]}]


def flip(_setting: Any) -> Defence:
    """Serves the least likely label as the most likely one."""
    return Defence("flip", serve=lambda task, state, outputs: -outputs)


def trained(
    out: Path, attacks: list[str], keep: str = "snapshots", defences: list[dict[str, Any]] | None = None
) -> Document:
    plain = asking(attacks, federation={"rounds": 3}).as_dict()
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
