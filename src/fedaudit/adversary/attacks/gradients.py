"""Gradient attacks: does the update point where the record's gradient points?

Li, Li, Ribeiro: "Effective passive membership inference attacks in federated learning against overparameterized
models", ICLR 2023; used as baselines by Chang et al. (USENIX Security 2024).

Adversary: the server (a party's update and the model the party started from), or anybody who holds two consecutive
global models.

1. In every round, the gradient g of the record's loss at the model that was received, and u = received - sent.
2. cosine: cos(g, u); diff: |u| - |u - g|; norm: -|g| (members are fitted, their gradients small).
3. The first two are computed for every layer; the mean over the rounds is taken for each.
4. The layer is the one whose mean varies least over known non-members (half of the calibration records).

Deviations: the papers print u with the opposite sign, which reverses the ranking (their AUC of .36). And they compute
every record's gradient, which costs 373 local epochs a round; one ghost pass gives the same numbers for about one.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, Evidence
from fedaudit.adversary.reductions import Mean
from fedaudit.types import Floats


@dataclass(frozen=True)
class GradientAttack(BaseAttack):
    """One gradient signal, averaged over the rounds."""

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.name,)

    def reduce(self, n: int) -> Mean:
        return Mean(self.name, n)


@dataclass(frozen=True)
class LayerAttack(GradientAttack):
    """A signal with one value for each layer, of which one is used. The last column, all layers together, is not."""

    measure: str = "cosine"
    layer: int | None = None  # None: the least varying one over known non-members
    fits: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"gradient-{self.measure}"

    def fit(self, evidence: Evidence) -> Self:
        known = evidence.nonmembers
        if self.layer is not None or known is None or np.isnan(known).all():
            return self
        return replace(self, layer=least_varying(known))

    def score(self, features: Floats) -> Floats:
        assert self.layer is not None or np.isnan(features).all(), "fit chooses the layer"
        return features[:, self.layer or 0]


def least_varying(reference: Floats) -> int:
    """The layer that varies least over known non-members. The last column, all layers together, is not a layer."""
    layers = reference[:, : max(reference.shape[1] - 1, 1)]
    defined = layers[~np.isnan(layers).any(axis=1)]
    spread = (defined if len(defined) else layers).var(axis=0)
    # A layer that never changed has no spread and carries no information.
    return int(np.argmin(np.where(spread > 0, spread, np.inf)))


@dataclass(frozen=True)
class GradientNorm(GradientAttack):
    """Minus the norm of the whole gradient."""

    @property
    def name(self) -> str:
        return "gradient-norm-all"

    def score(self, features: Floats) -> Floats:
        return -features[:, 0]
