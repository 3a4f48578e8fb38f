"""Who holds what, and which of it is trained on."""

import numpy as np
import pytest

from fedaudit.data.partition import game, iid, party_name
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.types import Records, Role


def records(n: int) -> Records:
    return dataset("a", np.arange(float(n))[:, None], np.arange(n) % 2, id=np.arange(n)).records


def test_fractions_apply_inside_every_party() -> None:
    rng = np.random.default_rng(0)
    split = game(records(1003), iid(records(1003), 4, rng), 0.3, 0.2, rng)
    for party in split.parties:
        mine = split.candidates.party == party
        n = int(mine.sum())
        assert n in (250, 251)
        assert int((mine & split.truth.mask(Role.MEMBER)).sum()) == round(0.3 * n)
        assert int((mine & split.truth.mask(Role.EVALUATION)).sum()) == pytest.approx(0.2 * n, abs=1)
        assert len(split.members(party)) == round(0.3 * n)
    assert sum(split.truth.mask(role).sum() for role in Role) == 1003


def test_B4_no_record_has_two_roles_or_parties() -> None:
    rng = np.random.default_rng(0)
    parts = iid(records(100), 3, rng)
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))
    split = game(records(100), parts, 0.4, 0.4, rng)
    members = np.concatenate([split.members(party).id for party in split.parties])
    assert set(members.tolist()) == set(split.truth.id[split.truth.mask(Role.MEMBER)].tolist())


def test_B3_an_empty_set_is_refused_with_its_numbers() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(FedauditError, match="party-0 has 3 records"):
        game(records(9), iid(records(9), 3, rng), 0.1, 0.3, rng)


def test_party_names_sort_by_number() -> None:
    names = [party_name(i, 100) for i in range(100)]
    assert names == sorted(names)
    assert names[3] == "party-03"
