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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, Evidence, FittedOn, OneSignal
from fedaudit.adversary.reductions import Kept, Mean
from fedaudit.config.attack_registry import ATTACKS, Short, option
from fedaudit.types import Floats, Moment


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


# ------------------------------------------------------------------ compared with the updates of the other parties

# FedMIA: Zhu et al., "FedMIA: an effective membership inference attack exploiting 'all for one' principle in federated
# learning", CVPR 2025. Source inference: Hu et al., "Source inference attacks in federated learning", ICDM 2021.
#
# Adversary: the server. It sees every party's update of a round, all made from the same broadcast.
#
# 1. In every round, cos(g, u_k) of the record's gradient at the broadcast with the update u_k of every party k, in one
#    layer: the one that gradient-cosine would choose, least varying over known non-members.
# 2. fedmia: parties other than the target have not trained on the target's record, so their cosines are the null: the
#    score of a round is how far the target's cosine lies above their mean, in standard deviations. The score is the
#    mean over the rounds in which somebody else took part.
# 3. source: the mean cosine of every party over the rounds in which it took part; whoever has the largest is named. The
#    score of a record for a party is that party's mean minus the largest of the others': positive when it is named.
#
# There are two different questions: does the record belong to a party or to *nobody* (members against outsiders), and
# does it belong to this party or to *another*? source answers both, and they are reported separately.
#
# Deviations: FedMIA turns the distance into a Gaussian probability, which is 1.0 in floating point for every clear
# member; the distance itself ranks a round's records the same way and has no ties. Its standard deviation comes from
# few parties, so it is shared: the mean over the records of their variances. Source inference compares losses; cosines
# cost one pass for all parties instead of one for each, and name the right party more often (docs/fusion.md).


OWN = "gradient-cosine"  # records x layers, and all layers together last
PEERS = "peer-cosine"  # the same for every other party, by name, side by side; NaN = took no part


def by_party(values: Mapping[str, Floats]) -> Floats:
    """Records x parties x layers, the target's own first."""
    own = values[OWN]
    return np.concatenate([own[:, None], values[PEERS].reshape(len(own), -1, own.shape[1])], axis=1)


def present(cosines: Floats) -> Floats:
    """Which parties took part."""
    return np.asarray(~np.isnan(cosines).all(axis=(0, 2)))


@dataclass(frozen=True)
class PeerAttack(BaseAttack):
    """`layer` belongs to the fitted copy."""

    layer: int | None = None
    fitted_on: ClassVar[tuple[FittedOn, ...]] = ("nonmembers",)

    @property
    def signals(self) -> tuple[str, ...]:
        return (OWN, PEERS)


# ------------------------------------------------------------------ fedmia


@ATTACKS.register("fedmia", "angle to the party's update, judged by the other parties' updates (server)")
@dataclass(frozen=True)
class FedMIA(PeerAttack):
    """How far the target's cosine lies above the other parties', mean over the rounds."""

    def reduce(self, n: int) -> "AbovePeers":
        return AbovePeers(n)

    def fit(self, evidence: Evidence) -> Self:
        assert evidence.nonmembers is not None
        return replace(self, layer=least_varying(np.split(evidence.nonmembers, 2, axis=1)[0]))

    def score(self, features: Floats) -> Floats:
        distance = np.split(features, 2, axis=1)[1]
        return distance[:, self.layer or 0]


class AbovePeers(Kept):
    """Sums over the rounds: of the target's own cosines, and of their distances from the others'."""

    def __init__(self, n: int):
        self.own: Floats = np.full((n, 1), np.nan)
        self.distance: Floats = np.full((n, 1), np.nan)
        self.rounds = 0

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        cosines = by_party(values)
        others = cosines[:, 1:][:, present(cosines)[1:]]
        if others.shape[1] == 0:
            return  # no other party to compare with
        spread = np.ones(others.shape[2])
        if others.shape[1] > 1:
            variance = others.var(axis=1, ddof=1)
            # A record whose gradient is NaN says nothing about how much the others vary.
            defined = np.isfinite(variance).all(axis=1)
            shared = np.sqrt(variance[defined].mean(axis=0)) if defined.any() else np.zeros(others.shape[2])
            spread = np.where(shared > 0, shared, 1.0)
        own, distance = cosines[:, 0], (cosines[:, 0] - others.mean(axis=1)) / spread
        self.own = self.own + own if self.rounds else own
        self.distance = self.distance + distance if self.rounds else distance
        self.rounds += 1

    def features(self) -> Floats:
        return np.concatenate([self.own, self.distance], axis=1) / max(self.rounds, 1)


# ------------------------------------------------------------------ source


@ATTACKS.register(
    "source",
    "which party held the record: whose update its gradient points to (server)",
    brief="which party held the record",
)
@dataclass(frozen=True)
class CosineMargin(PeerAttack):
    """By how much the target's mean cosine exceeds the largest of the others'."""

    question: ClassVar[str] = "source"

    def reduce(self, n: int) -> "MeanByParty":
        return MeanByParty(n)

    def fit(self, evidence: Evidence) -> Self:
        assert evidence.nonmembers is not None
        return replace(self, layer=least_varying(unfolded(evidence.nonmembers)[:, 0]))

    def score(self, features: Floats) -> Floats:
        return margin(self.agreement(features), 0)

    def agreement(self, features: Floats) -> Floats:
        """Records x parties, the target's own first: mean cosines in the chosen layer."""
        return unfolded(features)[:, :, self.layer or 0]


def margin(agreement: Floats, party: int) -> Floats:
    """The column of one party minus the largest of the others'; NaN while there are no others."""
    others = np.delete(agreement, party, axis=1)
    others = others[:, ~np.isnan(others).all(axis=0)]
    if others.shape[1] == 0:
        return np.full(len(agreement), np.nan)
    return np.asarray(agreement[:, party] - others.max(axis=1))


class MeanByParty(Kept):
    """Mean cosines over the rounds in which a party took part. The first column says how many parties there are."""

    def __init__(self, n: int):
        self.sums: Floats = np.zeros((n, 1, 1))
        self.rounds: Floats = np.zeros(1)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        cosines = by_party(values)
        there = present(cosines)
        self.sums = self.sums + np.where(there[None, :, None], cosines, 0.0)
        self.rounds = self.rounds + there

    def features(self) -> Floats:
        means = np.where(self.rounds[None, :, None] > 0, self.sums / np.maximum(self.rounds, 1)[None, :, None], np.nan)
        return np.concatenate([np.full((len(means), 1), means.shape[1]), means.reshape(len(means), -1)], axis=1)


def unfolded(features: Floats) -> Floats:
    """Records x parties x layers of what `MeanByParty` keeps."""
    return features[:, 1:].reshape(len(features), int(features[0, 0]), -1)
