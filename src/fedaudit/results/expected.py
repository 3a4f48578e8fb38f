"""What the matched filter is expected to find, before training: the map of docs/matched-filter.md as a formula.

    TPR at 1 % FPR = Phi(d' - 2.33)      d' = c  weights^0.37  (members / 1000)^-0.22  rounds^0.07 / sqrt(1 + k noise^2)

weights: of the layer that the filter looks at, for each member in the sum. members: in the sum; those of a party for
whoever sees its update, those of all parties for whoever sees the global models alone. noise: of `update-noise`, in
norms of the update. c depends on the data, and more than anything else.

`docs/make_matched_formula.py` fits the constants and says how far other runs lie from the formula. Beyond what was
measured nothing is said (`outside`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist

NORMAL = NormalDist()
AT_ONE_PERCENT = NORMAL.inv_cdf(0.99)

WEIGHTS, MEMBERS, ROUNDS = 0.37, -0.22, 0.07  # powers
SPREAD = 0.3  # nine of ten measured d' lie within this factor, as a logarithm,
POINT = 0.01  # and shares near nothing and near everybody within a point
NOISE = (0.05, 0.6)  # k of every federation that was measured with noise lies between these
# c of each data set: what is found of the members depends on in how many directions their records differ.
DATA: Mapping[str, float] = {
    "baskets": 0.93,
    "adult": 0.35,
    "mnist": 0.22,
    "cifar10": 0.24,
    "digits": 0.13,
    "hapt": 0.09,
    "breast-cancer": 0.05,
}
LIKE = "baskets"  # the only one that was measured with many weights
MANY = 30.0  # weights for each member; the other data sets were measured up to there


@dataclass(frozen=True, kw_only=True)
class FederationShape:
    weights: float  # for each member in the sum
    members: float  # in the sum
    rounds: int
    noise: float = 0.0  # in norms of the update

    def outside(self) -> str | None:
        """Why nothing is said about this shape; None: others like it were measured."""
        limits = (
            ("weights for each member in the sum", self.weights, 0.08, 200 if self.noise else 700),
            ("members in the sum", self.members, 100, 8000),
            ("rounds", self.rounds, 5, 40),
            ("norms of noise", self.noise, 3, 10),
        )
        for what, value, low, high in limits[: 4 if self.noise else 3]:
            if not low <= value <= high:
                return f"{low:g} to {high:,g} {what} were measured, and here are {value:,.3g}"
        return None


@dataclass(frozen=True)
class ExpectedShare:
    """Of the members, at 1 % FPR."""

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        low, high = round(100 * self.low), round(100 * self.high)
        return f"{low} %" if low == high else f"{low} to {high} %"


def expected(shape: FederationShape, data: str | None = None) -> ExpectedShare:
    """The share of members that is found. `data`: one of `DATA`; None: another one, so that each is possible."""
    known = [DATA[data]] if data is not None else list(DATA.values())
    few = min(shape.weights, MANY)  # more weights find more: what was measured with fewer is a lower end
    lowest = distance(shape if data == LIKE else _with(shape, few), min(known))
    highest = distance(shape, max(known))
    low, high = lowest / sqrt(1 + NOISE[1] * shape.noise**2), highest / sqrt(1 + NOISE[0] * shape.noise**2)
    value = sqrt(low * high)
    return _between(low, value, high)


def distance(shape: FederationShape, constant: float) -> float:
    """d' without noise: by how many standard deviations of an outsider's score a member's lies higher."""
    powers = shape.weights**WEIGHTS * (shape.members / 1000) ** MEMBERS * float(shape.rounds) ** ROUNDS
    return float(constant * powers)


def found(distance: float) -> float:
    return NORMAL.cdf(distance - AT_ONE_PERCENT)


def _between(low: float, value: float, high: float) -> ExpectedShare:
    ends = found(low * exp(-SPREAD)) - POINT, found(high * exp(SPREAD)) + POINT
    return ExpectedShare(found(value), max(0.0, ends[0]), min(1.0, ends[1]))


def _with(shape: FederationShape, weights: float) -> FederationShape:
    return FederationShape(weights=weights, members=shape.members, rounds=shape.rounds, noise=shape.noise)
