"""Reference attacks, against the formulas done the slow way."""

import numpy as np
import pytest
from scipy import stats

from fedaudit.adversary.attacks.reference import (
    KTA,
    RMIA,
    Distillation,
    LiRA,
    ReferenceAttack,
    Variance,
)
from fedaudit.adversary.attacks.trajectory import Followed
from fedaudit.adversary.shadow import INSIDE
from fedaudit.types import Bools, Floats, Moment

N = 8


def draw(n: int = 30) -> tuple[Floats, Floats, Bools]:
    rng = np.random.default_rng(0)
    inside = np.array([rng.permutation(N) < N // 2 for _ in range(n)])
    return rng.normal(size=n), rng.normal(size=(n, N)) + inside, inside


def last_round(attack: ReferenceAttack, target: Floats, references: Floats, inside: Bools) -> Floats:
    reduction = attack.reduce(len(target))
    for round in (1, 2):  # what came before the last round must not matter
        noise = 5.0 * (2 - round)
        reduction.observe(
            Moment(round),
            {"logit": target + noise, attack.of_references: references - noise, INSIDE: inside.astype(float)},
        )
    return attack.score(reduction.features())


@pytest.mark.parametrize("variance", ["shared", "record"])
def test_lira_is_the_gaussian_likelihood_ratio(variance: Variance) -> None:
    target, references, inside = draw()
    found = last_round(LiRA(variance=variance), target, references, inside)
    spreads = [
        [np.std(row[chosen], ddof=1) for row, chosen in zip(references, side, strict=True)]
        for side in (inside, ~inside)
    ]
    for i in range(len(target)):
        sd_in, sd_out = (s[i] if variance == "record" else np.sqrt(np.mean(np.square(s))) for s in spreads)
        expected = stats.norm.logpdf(target[i], references[i][inside[i]].mean(), sd_in) - stats.norm.logpdf(
            target[i], references[i][~inside[i]].mean(), sd_out
        )
        assert found[i] == pytest.approx(expected)


@pytest.mark.parametrize("metric", ["loss", "confidence", "logit"])
def test_kta_is_the_same_ratio_on_slopes(metric: Followed) -> None:
    rng = np.random.default_rng(1)
    rounds = [1, 2, 5, 6]
    target, references = rng.normal(size=(4, 30)), rng.normal(size=(4, 30, N))
    inside = draw()[2]
    attack = KTA(signal=metric)
    reduction = attack.reduce(30)
    for i, round in enumerate(rounds):
        had = inside.astype(float)
        reduction.observe(Moment(round), {metric: target[i], attack.of_references: references[i], INSIDE: had})
    slope = np.polyfit(rounds, target, 1)[0]
    slopes = np.polyfit(rounds, references.reshape(4, -1), 1)[0].reshape(30, N)
    assert attack.score(reduction.features()) == pytest.approx(last_round(LiRA(), slope, slopes, inside))


def test_one_round_has_no_score_yet() -> None:
    target, references, inside = draw()
    for attack in (KTA(), RMIA(slope=True)):
        reduction = attack.reduce(30)
        assert np.isnan(attack.score(reduction.features())).all()
        had = inside.astype(float)
        reduction.observe(Moment(1), {attack.metric: target, attack.of_references: references, INSIDE: had})
        assert np.isnan(attack.score(reduction.features())).all()


def test_distillation_looks_at_the_references_without_the_record() -> None:
    target, references, inside = draw()
    fraction = last_round(Distillation(fraction=True), target, references, inside)
    continuous = last_round(Distillation(variance="record"), target, references, inside)
    for i in range(len(target)):
        out = references[i][~inside[i]]
        assert fraction[i] == np.mean(out < target[i])  # a smaller logit is a larger loss
        assert continuous[i] == pytest.approx((target[i] - out.mean()) / out.std(ddof=1))


def test_rmia_is_the_ratio_of_likelihoods() -> None:
    target, references, inside = draw()
    p, q = 1 / (1 + np.exp(-target)), 1 / (1 + np.exp(-references))
    found = last_round(RMIA(), target, references, inside)
    assert found == pytest.approx(np.log(p / q.mean(axis=1)))
    assert len(np.unique(last_round(RMIA(), target + 60, references - 30, inside))) == len(target)  # no ties at 1


def test_an_outsider_has_only_references_without_the_record() -> None:
    target, references, _ = draw()
    attack = LiRA(outside=True)
    assert INSIDE not in attack.signals
    reduction = attack.reduce(30)
    reduction.observe(Moment(1), {"logit": target, "outside-plain-reference-logit": references})
    sd = np.sqrt(references.var(axis=1, ddof=1).mean())
    assert attack.score(reduction.features()) == pytest.approx((target - references.mean(axis=1)) / sd)
