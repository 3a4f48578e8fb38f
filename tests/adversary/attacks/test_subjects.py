"""Attacks on people: each against the obvious slow way, and all alike in what every attack must do."""

import dataclasses

import numpy as np
import pytest

from fedaudit.adversary.attacks import DEFAULTS, choose, every, made
from fedaudit.adversary.attacks.base import Evidence, Own
from fedaudit.adversary.attacks.reference import Beside
from fedaudit.adversary.attacks.subjects import SubjectLoss, SubjectRounds, best_threshold, shares
from fedaudit.adversary.signals import NEEDS
from fedaudit.adversary.signals.updates import FILTER, STRENGTH
from fedaudit.config.schema import AuditSection
from fedaudit.types import Floats, Moment

OUTSIDE = "outside-plain-reference-loss"
ROWS = {
    "subject-loss": ("loss",),
    "subject-rounds": ("loss",),
    "subject-neighbourhood": ("neighbourhood-loss",),
    "subject-fta": ("confidence",),
    "subject-cosine": ("gradient-cosine",),
    "subject-matched": (FILTER, STRENGTH[FILTER]),
    "subject-unmix": ("unmix", "unmix-fit"),
    "subject-corrected": ("loss", OUTSIDE),
    "subject-rmia": ("loss", OUTSIDE),
}


def test_every_attack_has_a_row() -> None:
    assert set(ROWS) == set(every("subject"))


@pytest.mark.parametrize("name", ROWS)
def test_attack_contract(name: str) -> None:
    attack = made(name)
    assert attack.name == name
    assert attack.signals == ROWS[name]
    assert set(attack.signals) <= set(NEEDS)
    assert dataclasses.is_dataclass(attack)
    assert attack == made(name)
    assert attack.question == "subject"
    assert "known" in attack.fitted_on


def test_the_default_ones_are_chosen_in_a_game_about_people() -> None:
    expected = list(DEFAULTS["subject"])
    assert [attack.name for attack in choose(None, AuditSection(unit="subject"))] == expected
    assert not set(expected) & {attack.name for attack in choose(None)}


@pytest.mark.parametrize("name", ROWS)
def test_higher_means_member(name: str) -> None:
    """Subject 0 is learnt fast and made the update; a known member is like it, the others are not."""
    attack = made(name)
    rng = np.random.default_rng(0)
    reduction = attack.reduce(20)
    speed = np.concatenate([[6.0, 6.0], rng.normal(2, 0.1, 18)])
    for round in range(1, 11):
        logit = speed * (1 - np.exp(-0.5 * (round - 1))) - 2
        if name == "subject-rounds":  # others rise every other round
            logit = logit - np.where(speed < 5, 4 * (round % 2), 0)
        loss = np.logaddexp(0, -logit)
        rows = loss[:, None] + np.linspace(-0.1, 0.1, 7)  # seven records of each
        agreement = np.column_stack([np.concatenate([[0.8, 0.8], rng.normal(0, 0.1, 18)])] * 2)
        reduction.observe(Moment(round), {
            "loss": rows if attack.gather == "sorted" else loss, "neighbourhood-loss": rows,
            "confidence": np.exp(-loss), "gradient-cosine": agreement, FILTER: agreement[:, 0],
            STRENGTH[FILTER]: np.full(20, 2.0), "unmix": agreement[:, 0],
            "unmix-fit": np.tile([0.5, 0.0, 1.0], (20, 1)),
            OUTSIDE: np.tile(np.logaddexp(0, 2 - np.arange(4) / 10), (20, 1)),
        })  # fmt: skip
    features = reduction.features()
    known = Own(features[1:11], np.arange(1, 11) == 1)
    scores = attack.fit(Evidence(features[2:], known=known)).score(features)
    assert scores[0] > scores[11:].max()


def test_shares_count_the_losses_below() -> None:
    rng = np.random.default_rng(0)
    losses = rng.random((6, 9))
    losses[2, 5:], losses[3] = np.nan, np.nan
    cuts = np.array([0.0, 0.3, losses[0, 0], 2.0])
    found = shares(losses, cuts)
    for i, own in enumerate(losses):
        mine = [value for value in own if not np.isnan(value)]
        for j, cut in enumerate(cuts):
            slow = sum(value <= cut for value in mine) / len(mine) if mine else np.nan
            assert found[i, j] == pytest.approx(slow, nan_ok=True)


def test_lambda_tells_the_known_apart_best() -> None:
    """No other value of lambda does better with any threshold on the share."""
    rng = np.random.default_rng(1)
    member = np.arange(20) < 8
    losses = rng.gamma(2.0, np.where(member, 0.6, 1.0)[:, None], (20, 30))

    def reached(cut: float) -> float:
        own = (losses <= cut).mean(axis=1)
        return max(float((own[member] >= t).mean() + (own[~member] < t).mean()) / 2 for t in [*own, np.inf])

    found = best_threshold(losses, member)
    assert found is not None
    tried = np.unique(losses)[np.linspace(0, losses.size - 1, 200).astype(int)]
    assert reached(found) == max(reached(cut) for cut in tried)
    assert SubjectLoss(threshold=found).score(losses) == pytest.approx((losses <= found).mean(axis=1))
    assert best_threshold(losses, np.ones(20, bool)) is None


def test_rounds_counts_falls_and_skips_what_was_not_observed() -> None:
    series = np.array([[3.0, 2.0, 2.5, 1.0], [1.0, 1.0, 1.0, 0.5], [2.0, np.nan, 1.0, 3.0]])
    kept = SubjectRounds().reduce(3)
    assert np.isnan(kept.features()).all()
    for round, column in enumerate(series.T, start=1):
        kept.observe(Moment(round), {"loss": column})
    assert kept.features()[:, 0].tolist() == [2.0, 1.0, 1.0]


@pytest.mark.parametrize("name", ["subject-corrected", "subject-rmia"])
def test_references_are_what_other_people_make_likely(name: str) -> None:
    rng = np.random.default_rng(0)
    target, references = rng.random(5), rng.random((5, 4))
    attack = made(name)
    kept = attack.reduce(5)
    assert isinstance(kept, Beside)
    kept.observe(Moment(1), {"loss": target, OUTSIDE: references})
    slow: Floats = references.mean(axis=1) - target
    if name == "subject-rmia":
        slow = np.log(np.exp(-target) / np.exp(-references).mean(axis=1))
    assert attack.score(kept.features()) == pytest.approx(slow)
