"""What every attack must do: one row here for each. A new attack is added to `ROWS`."""

import dataclasses

import numpy as np
import pytest

from fedaudit.attacks import BLIND, REGISTRY, choose
from fedaudit.errors import FedauditError
from fedaudit.signals import NEEDS

# attack -> the signals it reads
ROWS = {
    "fta-confidence": ("confidence",),
    "fta-loss": ("loss",),
    "fta-logit": ("logit",),
    "loss": ("loss",),
    "gradient-cosine": ("gradient-cosine",),
    "gradient-diff": ("gradient-diff",),
    "gradient-norm-all": ("gradient-norm-all",),
    "fusion": ("gradient-cosine", "confidence"),
}


def test_every_attack_has_a_row() -> None:
    assert set(ROWS) == set(REGISTRY)


@pytest.mark.parametrize("name", ROWS)
def test_attack_contract(name: str) -> None:
    attack = REGISTRY[name].make()
    assert attack.name == name
    assert attack.signals == ROWS[name]
    assert set(attack.signals) <= set(NEEDS)
    assert dataclasses.is_dataclass(attack)
    assert attack == REGISTRY[name].make()  # nothing but hyperparameters


@pytest.mark.parametrize("name", ROWS)
def test_higher_means_member(name: str) -> None:
    """Candidate 0 is learnt fast and helped to make the update, the others did not; every attack must rank it first."""
    attack = REGISTRY[name].make()
    rng = np.random.default_rng(0)
    reduction = attack.reduce(20)
    for round in range(1, 11):
        logit = np.array([0.6, *rng.normal(0.1, 0.02, 19)]) * round - 4
        agreement = np.column_stack([np.array([0.8, *rng.normal(0, 0.1, 19)])] * 2)  # one layer, and all layers
        values = {"logit": logit, "loss": np.logaddexp(0, -logit), "confidence": 1 / (1 + np.exp(-logit))}
        values |= {"gradient-cosine": agreement, "gradient-diff": agreement - 1, "gradient-norm-all": np.exp(-logit)}
        reduction.observe(round, values)
    features = reduction.features()
    fitted = attack.fit(features[1:]) if attack.fits else attack
    scores = fitted.score(features)
    assert scores[0] > scores[1:].max()


def test_unknown_attack_suggests() -> None:
    with pytest.raises(FedauditError, match="Did you mean 'fta-loss'"):
        choose(["fta-los"])


def test_default_and_blind() -> None:
    assert [a.name for a in choose(None)] == [name for name, entry in REGISTRY.items() if entry.default]
    assert [a.name for a in choose([BLIND, "loss", "loss"])] == ["loss"]
