"""[federation]: keys that belong together, and whole audits of the federations they describe."""

import re
from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.types import Moment, Records
from tests.worlds import config, watch


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"beta": 0.5}, "beta belongs to partition = 'dirichlet'"),
        ({"partition": "dirichlet"}, "needs beta, for example"),
        ({"partition": "dirichlet", "beta": float("nan")}, "beta"),
        ({"column": "age"}, "column belongs to partition = 'column'"),
        ({"partition": "column"}, "needs column"),
        ({"held_out": 0.3}, "held_out belongs to partition = 'subjects'"),
        ({"partition": "subjects", "members": 0.3}, "members has no effect when partition is 'subjects'"),
        ({"partition": "subjects", "member_subjects": 0.6, "held_out": 0.5}, "leave subjects for calibration"),
        ({"sampling": "poisson"}, "set participation below 1"),
        ({"participation": 0.0}, "participation"),
        ({"participation": 1.5}, "participation"),
        ({"algorithm": "fedsgd", "local_epochs": 2}, "local_epochs has no effect when algorithm is 'fedsgd'"),
        ({"algorithm": "fedsgd", "optimizer": "adam"}, "optimizer has no effect"),
    ],
)
def test_wrong_combinations_are_refused_with_what_to_do(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(FedauditError, match="federation") as caught:
        parse({"federation": keys})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"partition": "dirichlet", "beta": 0.5},
        {"partition": "column", "column": "age"},
        {"partition": "subjects"},
        {"participation": 0.2},
        {"participation": 0.2, "sampling": "poisson"},
        {"algorithm": "fedsgd", "lr": 0.1},
    ],
)
def test_what_is_written_down_can_be_read_again(keys: dict[str, Any]) -> None:
    first = parse({"federation": keys})
    again = parse(first.as_dict())
    assert again == first
    assert again.hash() == first.hash()


def test_K36_fedsgd_is_one_gradient_step_on_all_members_together() -> None:
    prepared = prepare(parse({
        "data": {"name": "digits"}, "model": {"hidden": [16]},
        "federation": {"parties": 3, "rounds": 2, "algorithm": "fedsgd", "lr": 0.5},
    }))  # fmt: skip
    parts = [prepared.game.members(name) for name in prepared.game.parties]
    x, y, ids = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y", "id"))
    together = Records(x, y, ids)
    for round in rounds(prepared):
        training = prepared.parties[0].training  # type: ignore[attr-defined]
        central = prepared.task.train(round.broadcast, together, training, np.random.default_rng(0))
        for key, value in central.state.items():
            assert round.aggregate[key] == pytest.approx(value, abs=1e-6)


def test_F5_F6_few_of_many_parties_take_part() -> None:
    """Poisson rounds, some empty: those seen too seldom are named and left out, never scored at chance."""
    keys = {"parties": 12, "participation": 0.1, "sampling": "poisson", "rounds": 9, "seed": 1}
    prepared = prepare(config(federation=keys, audit={"attacks": ["fta-confidence", "fusion"]}))
    seen = list(rounds(prepared))
    assert any(not r.sent for r in seen)
    audit = watch(prepared)
    times = {party: sum(party in r.sent for r in seen) for party in prepared.game.parties}
    assert min(times.values()) < 2 <= max(times.values())
    local = {r.party: r for r in audit.results if (r.attack, r.model) == ("fta-confidence", "local")}
    for party, count in times.items():
        assert (local[party].estimates["auc"].value is None) == (count < 2), party
    pooled = local[None].estimates["auc"]
    judged = [local[p].estimates["auc"].n_pos for p, count in times.items() if count >= 2]
    assert pooled.n_pos == sum(judged)
    unseen = {party for party, count in times.items() if count < 2}
    headline = next(one for one in audit.headlines if one.model == "local")
    named = [one.missing for e in (local[None], headline) for one in e.estimates.values()]
    assert named
    for (missing,) in named:  # by the pooled result and by what is quoted
        assert (missing.why, set(missing.parties), missing.count, missing.of) == ("unseen", unseen, len(unseen), 12)
        roles = [prepared.game.truth.role[prepared.game.candidates.of_party(party)] for party in unseen]
        assert missing.members == sum(int(np.sum(role == "member")) for role in roles)
    assert prepared.auditor.last_round == 9
    curve = next(r for r in audit.results if (r.attack, r.model) == ("fusion", "global")).curves["auc"]
    taken = [r.index for r in seen if r.sent]
    assert list(curve.x) == taken[1:]  # a gap where nobody took part


@pytest.mark.parametrize("keys", [{"partition": "dirichlet", "beta": 0.3}, {"partition": "column", "column": "label"}])
def test_skewed_federations_are_audited(keys: dict[str, Any]) -> None:
    prepared = prepare(config(federation=keys | {"rounds": 2}, audit={"attacks": ["loss", "fta-loss", "fusion"]}))
    audit = watch(prepared)
    assert {r.party for r in audit.results if r.attack == "loss"} == {None, *prepared.game.parties}
    labels = [set(prepared.game.members(party).y.tolist()) for party in prepared.game.parties]
    if keys["partition"] == "column":
        assert not labels[0] & labels[1]
        assert all(re.fullmatch(r"label \d \+ 4 more", party) for party in prepared.game.parties)


def test_F1_a_sampled_federation_goes_on_as_if_it_had_not_stopped() -> None:
    prepared = prepare(config(federation={"parties": 6, "participation": 0.3, "sampling": "poisson", "rounds": 6}))
    whole = list(rounds(prepared))
    for before, after in zip(whole[3:], rounds(prepared, Moment(3), whole[2].aggregate), strict=True):
        assert set(before.sent) == set(after.sent)
        assert all(np.array_equal(value, after.aggregate[key]) for key, value in before.aggregate.items())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"coins": True, "members": 0.6, "nonmembers": 0.4}, "must leave a part for calibration"),
        ({"coins": True, "split_subjects": False}, "partition = 'subjects' for one coin a person"),
        ({"coins": True, "partition": "subjects", "member_subjects": 0.5, "held_out": 0.5}, "leave subjects"),
    ],
)
def test_coins_that_cannot_be_flipped_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(FedauditError) as caught:
        parse({"federation": keys})
    assert message in str(caught.value)


def test_without_coins_a_configuration_has_the_hash_that_it_always_had() -> None:
    assert parse({"federation": {"coins": False}}).hash() == parse({}).hash()
    assert parse({"federation": {"coins": True}}).hash() != parse({}).hash()
