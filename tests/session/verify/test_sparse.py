"""A claim of the sparse vector technique: what is stated is held against its own ledgers and against what left."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.errors import FedauditError
from fedaudit.session.verify import read_sparse
from fedaudit.session.verify.sparse import NOT_KEPT, DeclaredSparse, SparseCheck, judged, seen_in
from fedaudit.toml import written
from fedaudit.types import Round, State, Trained

ROUNDS = 2
LEDGER = {"party": "north", "calls": ROUNDS, "threshold": 10.0, "query": 20.0, "release": 30.0, "released": 200}
CLAIM: dict[str, Any] = {
    "mechanism": "sparse-vector",
    "epsilon": 120.0,
    "epsilon_one_round": 60.0,
    "unit": "user",
    "adjacency": "replace",
    "ledgers": [LEDGER | {"epsilon": 120.0}],
}
BEFORE: State = {"weight": np.zeros(400, np.float32), "counter": np.array(3)}


def noise(seed: int) -> State:
    values = np.zeros(400, np.float32)
    values[:200] = np.random.default_rng(seed).laplace(size=200)
    return {**BEFORE, "weight": values}


def checks(claim: dict[str, Any], *left: State) -> dict[str, SparseCheck]:
    said = DeclaredSparse.model_validate(claim)
    rounds = [Round(n, BEFORE, {"north": Trained(state, 1, 0.0)}, BEFORE) for n, state in enumerate(left, start=1)]
    return {one.id: one for one in judged(said, seen_in(said, ["north"] * ROUNDS, ((0, one) for one in rounds)))}


def outcomes(claim: dict[str, Any], *left: State) -> dict[str, str]:
    return {name: one.found[0] for name, one in checks(claim, *left).items()}


KEPT = dict.fromkeys(("V1", "V2", "V3", "V4", "V5"), "PASS") | {"V6": "CANNOT TELL"}


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({}, None),
        ({"epsilon": 0.001}, "V2"),
        ({"epsilon": 119.0}, "V2"),
        ({"epsilon": 500.0}, None),
        ({"epsilon_one_round": 1.0}, "V2"),
        ({"unit": None}, "V1"),
        ({"adjacency": None}, "V1"),
    ],
)
def test_what_is_stated_is_no_less_than_what_the_ledgers_add_up_to(change: dict[str, Any], fails: str | None) -> None:
    expected = KEPT | ({fails: "FAIL"} if fails else {})
    assert outcomes(CLAIM | change, noise(1), noise(2)) == expected


def test_what_leaves_without_noise_is_found() -> None:
    assert outcomes(CLAIM, noise(1), {**noise(2), "counter": np.array(4)}) == KEPT | {"V4": "FAIL"}


def test_an_update_of_zeros_is_seen_and_models_that_were_not_kept_are_not() -> None:
    zeros, unkept = checks(CLAIM, BEFORE, BEFORE), checks(CLAIM)
    assert [zeros[name].found[0] for name in ("V3", "V4", "V5")] == ["PASS", "PASS", "CANNOT TELL"]
    assert [NOT_KEPT in unkept[name].found[1] for name in ("V3", "V4", "V5")] == [True] * 3
    assert "every value that left is 0" in zeros["V5"].found[1]


def test_a_claim_without_ledgers_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "claim.toml").write_text(written({"claim": CLAIM | {"ledgers": []}}))
    with pytest.raises(FedauditError, match=r"claim\.ledgers"):
        read_sparse(tmp_path / "claim.toml")
