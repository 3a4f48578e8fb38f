"""A bank beside a small federation: who is in which set, what it learns, and what must not matter."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

from fedaudit.adversary.shadow import INSIDE, References
from fedaudit.adversary.shadow.bank import ReferenceModels, draw_inside, soft_targets
from fedaudit.adversary.signals.outputs import rescaled_logit
from fedaudit.adversary.vantage import View
from fedaudit.data.partition import reserve
from fedaudit.errors import FedauditError
from fedaudit.learn.many import steps_of
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.types import Records
from tests.views import banks as made_banks
from tests.views import global_view
from tests.worlds import config


@pytest.mark.parametrize(("records", "models"), [(100, 8), (101, 4)])
def test_every_record_is_in_exactly_half_of_the_sets(records: int, models: int) -> None:
    inside = draw_inside(records, models, np.random.default_rng(0))
    assert (inside.sum(axis=1) == models // 2).all()
    assert set(inside.sum(axis=0).tolist()) <= {records // 2, records - records // 2}


def test_soft_targets_are_cross_entropy_plus_distillation() -> None:
    """CE with soft labels = (1 - alpha) CE + alpha KL(target || reference) + alpha H(target), for any reference."""
    rng = np.random.default_rng(0)
    teacher, student, y = rng.normal(size=(6, 4)), rng.normal(size=(6, 4)), rng.integers(0, 4, 6)
    p, log_q = special.softmax(teacher, axis=1), special.log_softmax(student, axis=1)
    mixed = -(soft_targets(teacher, y, 4, 0.8) * log_q).sum(axis=1)
    entropy = -(p * np.log(p)).sum(axis=1)
    divergence = (p * (np.log(p) - log_q)).sum(axis=1)
    assert mixed == pytest.approx(0.2 * -log_q[np.arange(6), y] + 0.8 * divergence + 0.8 * entropy)
    assert soft_targets(teacher[:, :1], teacher[:, 1], 0, 0.25)[:, 0] == pytest.approx(
        0.75 * teacher[:, 1] + 0.25 * teacher[:, 0]
    )


def test_soft_targets_at_positions_are_those_of_each_position() -> None:
    rng = np.random.default_rng(0)
    teacher, y = rng.normal(size=(6, 3, 4)), rng.integers(0, 4, (6, 3))
    found = soft_targets(teacher, y, 4, 0.8)
    for position in range(3):
        assert np.array_equal(found[:, position], soft_targets(teacher[:, position], y[:, position], 4, 0.8))


def watch(references: References, signals: list[str], rows: Records, party: Any, prepared: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    banks = made_banks(references, prepared.task, signals, rows, party)
    for round in rounds(prepared):
        for bank in banks:
            values |= bank.answers(signals, global_view(round, prepared.task), round.index - 1)
    return values


def test_references_know_what_they_were_trained_on() -> None:
    prepared = prepare(config(audit={"attacks": ["lira"], "reference": {"models": 4}}, federation={"rounds": 12}))
    candidates, references = prepared.game.candidates, prepared.settings.references
    assert references is not None
    values = watch(references, ["plain-reference-logit"], candidates.rows, candidates.party, prepared)
    logit, inside = values["plain-reference-logit"], values[INSIDE] > 0

    assert logit.shape == inside.shape == (len(candidates), 4)
    assert (inside.sum(axis=1) == 2).all()
    assert logit[inside].mean() > logit[~inside].mean() + 0.1
    for party in prepared.game.parties:  # a party's references are trained on half of its own records
        mine = candidates.party == party
        assert set(inside[mine].sum(axis=0).tolist()) <= {mine.sum() // 2, mine.sum() - mine.sum() // 2}


def test_alpha_one_imitates_the_target_more_than_alpha_zero() -> None:
    prepared = prepare(config(audit={"attacks": ["lira"], "reference": {"models": 4}}, federation={"rounds": 12}))
    candidates, references = prepared.game.candidates, prepared.settings.references
    assert references is not None
    signals = ["plain-reference-logit", "distilled-reference-logit"]
    values = watch(references, signals, candidates.rows, candidates.party, prepared)
    *_, last = rounds(prepared)
    z = prepared.task.outputs(last.aggregate, candidates.rows.x)
    target = rescaled_logit(z, candidates.rows.y)[:, None]
    distance = {name: np.abs(values[name] - target).mean() for name in signals}
    assert distance["distilled-reference-logit"] < distance["plain-reference-logit"]


def test_references_train_as_many_epochs_a_round_as_the_parties() -> None:
    """They trained one, whatever local_epochs was, and had learnt less than the models that they stand for."""

    def after_a_round(epochs: int) -> ReferenceModels:
        asked = {"attacks": ["lira"], "reference": {"models": 4}}
        prepared = prepare(config(audit=asked, federation={"rounds": 2, "local_epochs": epochs}))
        candidates, references = prepared.game.candidates, prepared.settings.references
        assert references is not None
        signals = ["plain-reference-logit"]
        (bank,) = made_banks(references, prepared.task, signals, candidates.rows, candidates.party)
        bank.answers(signals, global_view(next(rounds(prepared)), prepared.task), 0)
        group: ReferenceModels = bank.groups[0]
        return group

    once, thrice = after_a_round(1), after_a_round(3)
    assert once.inside.tolist() == thrice.inside.tolist()
    surer = [
        float((rescaled_logit(z, g.data.y)[g.inside[:, 0]]).mean())
        for g in (once, thrice)
        for z in [g.answers(g.data.x)[0]]
    ]
    by_hand = after_a_round(1)
    rng = by_hand._rng(1)
    steps_of(by_hand.sets, by_hand.training.batch_size, rng), rng.integers(2**63)  # drawn for the first epoch
    for _ in range(2):
        steps = steps_of(by_hand.sets, by_hand.training.batch_size, rng)
        rng.integers(2**63)
        targets = soft_targets(
            np.zeros((len(by_hand.data), by_hand.task.classes)), by_hand.data.y, by_hand.task.classes, 0.0
        )
        by_hand.models.epoch(torch.from_numpy(by_hand.data.x), torch.from_numpy(targets.astype(by_hand.dtype)), steps)
    assert np.array_equal(by_hand.answers(by_hand.data.x), thrice.answers(thrice.data.x))
    assert surer[1] > surer[0]


def test_reserved_data_shares_no_subject_with_the_federation() -> None:
    rng = np.random.default_rng(0)
    subject = rng.integers(0, 60, 500).astype(str)
    records = Records(rng.normal(size=(500, 2)), np.zeros(500, int), np.arange(500).astype(str), subject)
    kept, own = reserve(records, 0.25, np.random.default_rng(1))
    assert records.subject is not None
    assert len(kept) + len(own) == 500
    assert 125 <= len(own) <= 145
    assert not set(kept.subject.tolist()) & set(own.subject.tolist())  # type: ignore[union-attr]
    without = Records(records.x, records.y, records.id)
    assert len(reserve(without, 0.2, rng)[1]) == 100


class Stop(BaseException):
    pass


def test_a_round_that_is_broken_off_leaves_the_bank_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(config(audit={"attacks": ["lira"], "reference": {"models": 4}}))
    candidates, references = prepared.game.candidates, prepared.settings.references
    assert references is not None
    signals = ["plain-reference-logit"]
    disturbed, undisturbed = (
        made_banks(references, prepared.task, signals, candidates.rows, candidates.party)[0] for _ in range(2)
    )
    first, second, *_ = (global_view(round, prepared.task) for round in rounds(prepared))
    for bank in (disturbed, undisturbed):
        bank.answers(signals, first, 0)
    learn = ReferenceModels.learn

    def stop_at_the_second_party(self: ReferenceModels, view: View, alpha: float) -> None:
        learn(self, view, alpha)
        if self.whose == "party-1":
            raise Stop

    monkeypatch.setattr(ReferenceModels, "learn", stop_at_the_second_party)
    with pytest.raises(Stop):
        disturbed.answers(signals, second, 1)
    monkeypatch.undo()
    found, expected = (bank.answers(signals, second, 1)[signals[0]] for bank in (disturbed, undisturbed))
    assert np.array_equal(found, expected)
    assert np.array_equal(disturbed.answers(signals, second, 1)[signals[0]], expected)  # asking twice trains once


def test_rounds_from_a_file_leave_a_bank_behind() -> None:
    prepared = prepare(config(audit={"attacks": ["lira"], "reference": {"models": 4}}))
    candidates, references = prepared.game.candidates, prepared.settings.references
    assert references is not None
    (bank,) = made_banks(references, prepared.task, ["plain-reference-logit"], candidates.rows, candidates.party)
    with pytest.raises(FedauditError, match="stand at round 0, and round 1 was read from a file"):
        bank.answers(["plain-reference-logit"], global_view(next(rounds(prepared)), prepared.task), 1)
