"""MemGuard, which bends what outsiders are answered, and leaves those alone who hold the weights."""

from typing import Any

import numpy as np

from fedaudit.config.schema import parse
from fedaudit.defences import Guarded
from fedaudit.defences.memguard import MemGuard
from fedaudit.federation.simulate import Trainer
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.types import Round
from fedaudit.words import all_words


def digits(defences: list[dict[str, Any]], vantages: tuple[str, ...] = ("client", "server")) -> Prepared:
    federation = {"parties": 2, "rounds": 3, "batch_size": 32, "lr": 3e-3, "local_epochs": 4}
    attacks = ["loss"] if "outsider" in vantages else ["fta-confidence", "loss"]
    audit = {"vantages": list(vantages), "attacks": attacks}
    return prepare(
        parse({"data": {"name": "digits"}, "federation": federation, "model": {"hidden": [64]}, "audit": audit,
               "defences": defences})
    )  # fmt: skip


def observed(prepared: Prepared) -> Round:
    last = None
    for last in rounds(prepared):
        prepared.auditor.observe(last)
    assert last is not None
    return last


def test_memguard_leaves_whoever_holds_the_weights_bit_equal_and_says_so() -> None:
    guard = [{"name": "memguard", "strength": 1.0}]
    bare, guarded = digits([], ("client", "server", "outsider")), digits(guard, ("client", "server", "outsider"))
    observed(bare), observed(guarded)
    assert bare.auditor.score_table() == guarded.auditor.score_table()
    without, found = bare.snapshot(), guarded.snapshot()
    by_vantage = {r.vantage: r.estimates["auc"].value for r in found.results if r.party is None and r.attack == "loss"}
    before = {r.vantage: r.estimates["auc"].value for r in without.results if r.party is None and r.attack == "loss"}
    assert by_vantage["client"] == before["client"]
    assert by_vantage["server"] == before["server"]
    assert by_vantage["outsider"] != before["outsider"]
    assert [h.vantage for h in found.headlines] == ["client", "server", "outsider"]
    assert any("adversaries who hold the weights" in notice for notice in all_words(found.notices))


def test_memguard_keeps_labels_and_its_budget_and_answers_alike_twice() -> None:
    prepared = digits([])
    last = observed(prepared)
    used, state, rows = prepared.task, last.aggregate, prepared.game.candidates.rows
    outputs = used.outputs(state, rows.x)
    for budget in (0.05, 1.0):
        guard = MemGuard(prepared.game.members("party-0"), budget)
        served = guard(used, state, outputs)
        assert np.array_equal(served.argmax(1), outputs.argmax(1))
        assert np.array_equal(served, guard(used, state, outputs))
        probabilities = [np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in (served, outputs)]
        distortion = np.abs(probabilities[0] - probabilities[1]).sum(1)
        assert 0 < distortion.mean() <= budget * 1.1
        # Where it bent, its own classifier is undecided
        bent = distortion > 1e-6
        certainty = guard._classifier(used, state)
        assert np.median(np.abs(certainty(probabilities[0][bent]))) < 0.05 * np.median(
            np.abs(certainty(probabilities[1]))
        )


def test_memguard_alone_with_an_outsider() -> None:
    prepared = digits([{"name": "memguard", "strength": 1.0}], ("outsider",))
    observed(prepared)
    assert prepared.auditor.snapshot().headlines[0].vantage == "outsider"


def test_guarded_parties_are_their_own_kind() -> None:
    """Fast paths that train several plain parties at once must not pick these up."""
    prepared = digits([{"name": "clip-only", "clip": 1.0}])
    assert all(type(party) is Guarded for party in prepared.parties)
    assert all(type(party) is Trainer for party in digits([]).parties)
