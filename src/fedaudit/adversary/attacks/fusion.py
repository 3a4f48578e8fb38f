"""Fusion: the sum of several attacks. It is our own attack; docs/fusion.md has the measurements.

Adversary: whoever can run all of the parts.

1. Every part is fitted on the same known non-members (half of the calibration records) and scores them.
2. Its scores are standardised with their mean and standard deviation there.
3. The standardised scores are summed with fixed weights. Nothing is tuned on members; the other half of the calibration
   records sets the thresholds.

The parts look at different things: gradient-cosine at whether the record contributed to the update, fta-confidence at
how fast the record is learnt. Their errors are nearly independent, so their sum separates better than either alone.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, Evidence
from fedaudit.adversary.reductions import Joined
from fedaudit.types import Floats


@dataclass(frozen=True)
class Fusion(BaseAttack):
    """A weighted sum of standardised scores. `centre` and `spread` belong to the fitted copy."""

    parts: tuple[BaseAttack, ...]
    weights: tuple[float, ...]
    centre: tuple[float, ...] | None = None
    spread: tuple[float, ...] | None = None
    fits: ClassVar[bool] = True

    @property
    def every_round(self) -> bool:  # type: ignore[override]
        return any(part.every_round for part in self.parts)

    @property
    def name(self) -> str:
        return "fusion"

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(signal for part in self.parts for signal in part.signals))

    def reduce(self, n: int) -> Joined:
        return Joined([part.reduce(n) for part in self.parts])

    def fit(self, evidence: Evidence) -> Self:
        assert evidence.nonmembers is not None
        features = Joined.split(evidence.nonmembers)
        parts = tuple(part.fit(Evidence(own)) for part, own in zip(self.parts, features, strict=True))
        scores = [known(part.score(own)) for part, own in zip(parts, features, strict=True)]
        centre, spread = tuple(float(s.mean()) for s in scores), tuple(float(s.std()) for s in scores)
        return replace(self, parts=parts, centre=centre, spread=spread)

    def score(self, features: Floats) -> Floats:
        assert self.centre is not None, "fit standardises the parts"
        assert self.spread is not None
        total = np.zeros(len(features))
        for part, weight, own, centre, spread in zip(
            self.parts, self.weights, Joined.split(features), self.centre, self.spread, strict=True
        ):
            # A part that is constant over non-members (for example, because it has seen too few rounds) adds nothing.
            total += weight * (part.score(own) - centre) / (spread if spread > 0 else 1.0)
        return total


def known(scores: Floats) -> Floats:
    """The scores without NaN; all of them if all are NaN."""
    defined = ~np.isnan(scores)
    return scores[defined] if defined.any() else scores
