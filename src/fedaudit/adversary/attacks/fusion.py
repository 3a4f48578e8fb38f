"""Fusion: several attacks added up. Ours; what was measured is in docs/fusion.md.

Adversary: whoever can run all of the parts.

1. Every part is fitted on the same known non-members (half of the calibration records) and scores them.
2. Its scores are standardised with their mean and standard deviation there.
3. The standardised scores are summed with fixed weights. Nothing is tuned on members; the other half of the calibration
   records sets the thresholds.

The parts look at different things: gradient-cosine at whether the update was made from the record, fta-confidence at
how fast the record is learnt. What disturbs the one hardly disturbs the other, so their sum separates better than both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.types import Floats, Grant, ModelKind, Reduction


@dataclass(frozen=True)
class Fusion(BaseAttack):
    """A weighted sum of standardised scores. `centre` and `spread` belong to the fitted copy."""

    parts: tuple[BaseAttack, ...]
    weights: tuple[float, ...]
    centre: tuple[float, ...] | None = None
    spread: tuple[float, ...] | None = None
    fits: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Grant]:  # type: ignore[override]
        return frozenset[Grant]().union(*(part.needs for part in self.parts))

    @property
    def models(self) -> tuple[ModelKind, ...]:  # type: ignore[override]
        """What every part can look at."""
        return tuple(model for model in BaseAttack.models if all(model in part.models for part in self.parts))

    @property
    def name(self) -> str:
        return "fusion"

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(signal for part in self.parts for signal in part.signals))

    def reduce(self, n: int) -> "Joined":
        return Joined([part.reduce(n) for part in self.parts])

    def fit(self, reference: Floats) -> Self:
        parts = tuple(
            part.fit(own) if part.fits else part for part, own in zip(self.parts, split(reference), strict=True)
        )
        scores = [known(part.score(own)) for part, own in zip(parts, split(reference), strict=True)]
        centre, spread = tuple(float(s.mean()) for s in scores), tuple(float(s.std()) for s in scores)
        return replace(self, parts=parts, centre=centre, spread=spread)

    def score(self, features: Floats) -> Floats:
        assert self.centre is not None, "fit standardises the parts"
        assert self.spread is not None
        total = np.zeros(len(features))
        for part, weight, own, centre, spread in zip(
            self.parts, self.weights, split(features), self.centre, self.spread, strict=True
        ):
            # A part that does not vary over non-members (say, before it has seen enough) says nothing.
            total += weight * (part.score(own) - centre) / (spread if spread > 0 else 1.0)
        return total


def known(scores: Floats) -> Floats:
    """Without the odd NaN; all of them where nothing is known yet."""
    defined = ~np.isnan(scores)
    return scores[defined] if defined.any() else scores


class Joined:
    """The parts' features side by side, behind one column each that says how many columns the part has."""

    def __init__(self, reductions: Sequence[Reduction]):
        self.reductions = reductions

    def observe(self, round: int, values: Mapping[str, Floats]) -> None:
        for reduction in self.reductions:
            reduction.observe(round, values)

    def features(self) -> Floats:
        parts = [reduction.features() for reduction in self.reductions]
        widths = np.tile([float(part.shape[1]) for part in parts], (len(parts[0]), 1))
        return np.concatenate([np.full((len(parts[0]), 1), len(parts)), widths, *parts], axis=1)


def split(features: Floats) -> list[Floats]:
    """What `Joined` put together."""
    if len(features) == 0:
        raise ValueError("no features to split")
    count = int(features[0, 0])
    ends = np.cumsum(features[0, 1 : 1 + count].astype(int))
    return np.split(features[:, 1 + count :], ends[:-1], axis=1)
