"""What fedaudit states about its own runs is checked, too; and what only part of a trace shows."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import parse
from fedaudit.defences.dp_fedavg import Clip
from fedaudit.defences.shared import Defence
from fedaudit.errors import FedauditError
from fedaudit.federation import plans as sampled
from fedaudit.federation.simulate import federate
from fedaudit.session.run import masked, run
from fedaudit.session.verify import Check, verify, verify_rounds
from fedaudit.stats.gaussian import gaussian_epsilon
from fedaudit.trace.store import Store
from fedaudit.types import Moment, Round
from tests import sealed
from tests.session.verify.test_verify import (
    CLIP,
    CONFIG,
    DELTA,
    HONEST,
    NAMES,
    NOISE,
    ROUNDS,
    central,
    failed,
    outcomes,
    parties,
    task,
    trained,
)
from tests.worlds import silent


def by_id(found: list[Check]) -> dict[str, Check]:
    return {one.id: one for one in found}


# ------------------------------------------------------------------ its own runs


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("own") / "run"
    run(parse({"data": {"name": "digits"}, "federation": {"parties": 3, "rounds": 3}, "model": {"hidden": [32]},
               "audit": {"attacks": ["loss"], "keep": "snapshots"},
               "defences": [{"name": "dp-fedavg", "noise": 1.0, "clip": 0.5}]}), out, silent)  # fmt: skip
    shutil.copytree(out, out.with_name("untouched"))
    return out


def restated(own: Path, **guarantee: Any) -> list[Check]:
    path = own / "results.json"
    before = path.read_text()
    document = json.loads(before)
    document["run"]["guarantee"] |= guarantee
    sealed.write(path, json.dumps(document))
    try:
        return verify(own, None)
    finally:
        path.write_text(before)


@pytest.mark.parametrize(
    ("guarantee", "fails"),
    [
        ({}, set()),
        ({"epsilon": 0.001}, {"D8"}),
        ({"epsilon_one_round": 0.001}, {"D2"}),
        ({"curve": {"round": [1, 2], "epsilon": [1.0, 2.0]}}, {"D8"}),
        ({"adjacency": None}, {"D9"}),
        ({"process": {"unit": "user", "noise": 1.0, "releases": 1, "sampler": "poisson", "rate": 0.1}}, {"D7"}),
    ],
)
def test_what_results_state_is_what_is_checked(own: Path, guarantee: dict[str, Any], fails: set[str]) -> None:
    assert failed(restated(own, **guarantee)) == fails


def test_results_that_state_nonsense_are_refused(own: Path) -> None:
    with pytest.raises(FedauditError, match=r"run\.guarantee\.epsilon: a number is needed"):
        restated(own, epsilon="a little")
    with pytest.raises(FedauditError, match="run-guarantee"):
        restated(own, curve={"round": [], "epsilon": []})


def test_every_promise_is_checked_under_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    second = '[[defences]]\nname = "dp-fedavg"\nnoise = 1.0\nclip = 0.5\n'
    path.write_text(CONFIG.replace("NAME", "dp-sgd") + second)
    found = verify(path, None)
    assert [one.claim for one in found] == ["dp-sgd, one record"] * 10 + ["dp-fedavg, one user"] * 10
    assert failed(found) == set()


def test_what_would_be_ignored_is_refused(tmp_path: Path, own: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(CONFIG.replace("NAME", "dp-sgd"))
    with pytest.raises(FedauditError, match="verify-claim"):
        verify(path, tmp_path / "claim.toml")
    with pytest.raises(FedauditError, match="verify-set"):
        verify(own, None, ["federation.rounds=2"])


# ------------------------------------------------------------------ branches


def test_D8_rounds_of_an_abandoned_branch_are_charged(tmp_path: Path) -> None:
    plans = sampled(NAMES, ROUNDS, 1.0, "poisson", 3)
    first = list(federate(task(), parties(), plans, 3, defence=HONEST))
    after_two = list(federate(task(), parties(), plans, 99, after=Moment(2), model=first[1].aggregate, defence=HONEST))
    with Store.create(tmp_path / "run", {"keep": "snapshots", "config": {}, "guarantee": None}) as store:
        for round in [*first, *after_two]:
            store.append(round)
    one, five, eight = (gaussian_epsilon(math.sqrt(r) / NOISE, DELTA) * 1.0001 for r in (1, 5, 8))

    def checked(epsilon: float) -> dict[str, Check]:
        claim = tmp_path / "claim.toml"
        claim.write_text(
            f'[claim]\nepsilon = {epsilon}\nepsilon_one_round = {one}\ndelta = {DELTA}\nclip = {CLIP}\n'
            f'noise = {NOISE}\nwhere = "aggregate"\nunit = "user"\nadjacency = "add-remove"\nparties = 6\n'
        )  # fmt: skip
        return by_id(verify(tmp_path / "run", claim))

    short = checked(five)
    assert failed(list(short.values())) == {"D8"}
    assert "round 3 of branch 0" in short["D8"].evidence
    assert short["D3"].evidence.endswith("8 looked at")
    assert failed(list(checked(eight).values())) == set()


# ------------------------------------------------------------------ what a trace does not show


def test_masked_updates_cannot_be_told(tmp_path: Path) -> None:
    found = by_id(verify_rounds(central(), [masked(round) for round in trained(HONEST)]))
    for id in ("D3", "D4", "D5", "D6", "D10"):
        assert (found[id].outcome, "masked" in found[id].evidence) == ("CANNOT TELL", True), found[id]
    path = tmp_path / "c.toml"
    path.write_text(CONFIG.replace("NAME", "dp-fedavg").replace("rounds = 3", "rounds = 3\nsecagg = true"))
    assert failed(verify(path, None)) == set()


def with_array(round: Round, value: np.ndarray[Any, Any]) -> Round:
    more = {"scale": value}
    sent = {name: replace(one, state={**one.state, **more}) for name, one in round.sent.items()}
    return replace(round, broadcast={**round.broadcast, **more}, sent=sent, aggregate={**round.aggregate, **more})


def test_D5_an_array_that_never_changes_needs_no_noise() -> None:
    found = by_id(verify_rounds(central(), [with_array(r, np.ones(200, np.float32)) for r in trained(HONEST)]))
    assert failed(list(found.values())) == set()
    assert "never changed: scale" in found["D5"].evidence


def test_a_server_learning_rate_is_declared_or_leaves_the_noise_untold() -> None:
    slow = [
        replace(r, aggregate={k: (v + 10 * (r.aggregate[k] - v)).astype(v.dtype) for k, v in r.broadcast.items()})
        for r in trained(HONEST)
    ]
    assert set(outcomes(verify_rounds(central(server_lr=10.0), slow)).values()) == {"PASS"}
    found = by_id(verify_rounds(central(), slow))
    assert [found[id].outcome for id in ("D3", "D4", "D5")] == ["CANNOT TELL"] * 3
    assert "server_lr" in found["D3"].evidence


def test_D5_record_counts_that_weigh_the_mean_are_told() -> None:
    local = trained(Defence("local", update=Clip(CLIP, NOISE)))
    assert "record counts" in by_id(verify_rounds(central(where="update", denominator=None), local))["D5"].evidence
    assert "record counts" not in by_id(verify_rounds(central(), trained(HONEST)))["D5"].evidence


def test_an_epsilon_of_zero_can_be_stated() -> None:
    assert outcomes(verify_rounds(central(epsilon=0.0, epsilon_one_round=0.0), []))["D2"] == "FAIL"


# ------------------------------------------------------------------ a record that is not whole


OF_ROUNDS = {"D3", "D4", "D5", "D6", "D7", "D8", "D10"}


@pytest.fixture
def whole(own: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(own.with_name("untouched"), tmp_path / "run"))


def told(run: Path) -> dict[str, Check]:
    """What is found of a run that is not whole: nothing that rests on its rounds passes."""
    found = by_id(verify(run, None))
    assert {found[one].outcome for one in OF_ROUNDS} == {"CANNOT TELL"}, found
    assert {found[one].outcome for one in ("D1", "D2", "D9")} == {"PASS"}
    return found


def test_F12_any_line_that_is_damaged_or_taken_out_of_the_journal_is_noticed(whole: Path) -> None:
    """It said "D8 PASS: 2 rounds cost 3.331" where three cost 3.999."""
    path = whole / "journal.jsonl"
    before = path.read_bytes()
    lines = before.splitlines(keepends=True)
    vouched = next(i for i, line in enumerate(lines) if b'"results.json"' in line)
    assert by_id(verify(whole, None))["D8"].outcome == "PASS"
    for number, line in enumerate(lines[:-1]):
        path.write_bytes(b"".join([*lines[:number], line.replace(b'"n": ', b'"n":  '), *lines[number + 1 :]]))
        assert f"Line {number + 1} of journal.jsonl is damaged" in told(whole)["D8"].evidence
        path.write_bytes(b"".join([*lines[:number], *lines[number + 1 :]]))
        assert "1 numbered lines" in told(whole)["D8"].evidence
    for kept in range(2, vouched + 1):  # cut at its end
        path.write_bytes(b"".join(lines[:kept]))
        assert any(word in told(whole)["D8"].evidence for word in ("does not know results.json", "there are files"))
    path.write_bytes(before[:-20])
    assert "only half written" in told(whole)["D8"].evidence
    path.write_bytes(lines[0])
    with pytest.raises(FedauditError, match="no-rounds"):
        verify(whole, None)


def test_F12_a_damaged_model_is_no_proof_of_noise(whole: Path) -> None:
    damaged = next((whole / "rounds" / "00002").glob("party-*"))
    blob = bytearray(damaged.read_bytes())
    blob[-1] ^= 1
    damaged.write_bytes(blob)
    assert damaged.name in told(whole)["D3"].evidence


def test_F12_a_failure_stands_whatever_is_missing(whole: Path) -> None:
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (whole / "journal.jsonl").write_bytes(b"".join([*lines[:1], *lines[2:]]))
    assert by_id(restated(whole, epsilon=0.1))["D8"].outcome == "FAIL"
