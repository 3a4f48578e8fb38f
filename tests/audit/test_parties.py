"""Parties compared with one another in a real federation."""

from dataclasses import replace

from fedaudit.federation.simulate import Trainer
from fedaudit.run import prepare
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
    exposed = [line for line in notices if "more exposed" in line]
    assert exposed
    assert all(line.startswith("party-1 is more exposed than the others: loss on ") for line in exposed)


def test_nobody_is_named_in_a_null_world() -> None:
    assert not any("more exposed" in line for line in watch(null_world(config(federation={"parties": 3}))).notices)
