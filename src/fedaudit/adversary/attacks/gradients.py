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
from typing import ClassVar, Literal, Self

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, Evidence, FittedOn, OneSignal
from fedaudit.adversary.reductions import Mean
from fedaudit.config.attack_registry import ATTACKS, Short, option
from fedaudit.types import Floats


@ATTACKS.register(
    "gradient",
    "how the record's gradient lies to the update, one layer",
    short=[
        Short("gradient-cosine", "angle between the record's gradient and the update, one layer"),
        Short("gradient-diff", "how much nearer the update lies to the record's gradient", {"measure": "diff"}),
    ],
)
@dataclass(frozen=True)
class LayerAttack(BaseAttack):
    """A signal with one value for each layer, of which one is used: its mean over the rounds. The last column, all
    layers together, is not."""

    measure: Literal["cosine", "diff"] = option("cosine", "the angle, or how much nearer the update lies")
    layer: int | None = None  # None: the least varying one over known non-members
    fitted_on: ClassVar[tuple[FittedOn, ...]] = ("nonmembers",)

    @property
    def signals(self) -> tuple[str, ...]:
        return (f"gradient-{self.measure}",)

    def reduce(self, n: int) -> Mean:
        return Mean(self.signals[0], n)

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


@ATTACKS.register("gradient-norm-all", "norm of the record's gradient over all layers, small for members")
@dataclass(frozen=True)
class WholeGradientNorm(OneSignal):
    """Minus the norm of the whole gradient, mean over the rounds."""

    signal: ClassVar[str] = "gradient-norm-all"

    def reduce(self, n: int) -> Mean:
        return Mean(self.signal, n)

    def score(self, features: Floats) -> Floats:
        return -features[:, 0]
