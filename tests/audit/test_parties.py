"""Parties compared with one another in a real federation."""

from dataclasses import replace

import numpy as np

from fedaudit.audit import Auditor
from fedaudit.federation.simulate import Trainer
from fedaudit.session.prepare import prepare
from fedaudit.stats.wording import without
from fedaudit.types import Candidates, Game, Role, Truth
from fedaudit.words import words
from tests.worlds import config, null_world, watch

SMALL = {"members": 0.1, "nonmembers": 0.4, "rounds": 3}


def test_a_party_that_overfits_is_named_and_no_other() -> None:
    prepared = prepare(config(federation=SMALL | {"lr": 1e-2}, audit={"attacks": ["loss"]}))
    parties = []
    for party in prepared.parties:
        assert isinstance(party, Trainer)
        epochs = 60 if party.name == "party-1" else 1
        training = replace(party.training, epochs=epochs)
        parties.append(Trainer(party.name, party.records, training))
    notices = watch(replace(prepared, parties=list(parties))).notices
    exposed = [words(one) for one in notices if one.code == "more-exposed"]
    assert exposed
    assert all(line.startswith("party-1 is more exposed than the others: loss on ") for line in exposed)


def test_nobody_is_named_in_a_null_world() -> None:
    told = watch(null_world(config(federation={"parties": 3}))).notices
    assert not any(one.code == "more-exposed" for one in told)


def test_a_party_without_known_non_members_costs_the_others_nothing() -> None:
    prepared = prepare(config(federation={"parties": 3, "rounds": 2}, audit={"attacks": ["fusion", "loss"]}))
    game = prepared.game
    kept = (game.candidates.party != "party-0") | ~game.truth.mask(Role.CALIBRATION)
    rows = game.candidates.rows.take(kept)
    fewer = Candidates("record", rows.id, game.candidates.party[kept], rows, np.arange(len(rows)))
    auditor = Auditor(prepared.task, Game(fewer, Truth(rows.id, game.truth.role[kept])), prepared.settings)
    audit = watch(replace(prepared, auditor=auditor))
    assert audit.failed == {}
    found = {r.party: r.estimates["auc"] for r in audit.results if (r.attack, r.model) == ("fusion", "local")}
    assert "2 known non-members" in str(found["party-0"].reason)
    assert found[None].n_pos == found["party-1"].n_pos + found["party-2"].n_pos
    pooled = next(r for r in audit.results if (r.attack, r.model, r.party) == ("fusion", "local", None))
    assert "without party-0 (1 of 3 parties" in without(pooled.estimates["auc"])
    assert "too few known non-members" in without(pooled.estimates["auc"])
