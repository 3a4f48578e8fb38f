"""Fusion: the sum of several attacks. It is our own attack; docs/fusion.md has the measurements.

Adversary: whoever can run all of the parts.

1. Every part is fitted on the same known non-members (half of the calibration records) and scores them.
2. Its scores are standardised with their mean and standard deviation there.
3. The standardised scores are summed with fixed weights. Nothing is tuned on members; the other half of the calibration
   records sets the thresholds.

The parts look at different things: gradient-cosine at whether the record contributed to the update, fta-confidence at
how fast the record is learnt. Their errors are nearly independent, so their sum separates better than either alone.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fedaudit.adversary.attacks import made
from fedaudit.adversary.attacks.base import BaseAttack, Evidence, FittedOn
from fedaudit.adversary.attacks.reference import ReferenceAttack
from fedaudit.adversary.reductions import Joined
from fedaudit.config import schema
from fedaudit.config.attack_registry import ATTACKS, option_of
from fedaudit.errors import FedauditError, suggest
from fedaudit.types import Floats

_OTHER_PART = "In audit.fusion.attacks, name attacks that read every round, such as fta-logit, kta-logit or rmia-slope."


@ATTACKS.register(
    "fusion",
    "sum of standardised attacks: gradient-cosine and fta-confidence",
    brief="sum of standardised attacks",
)
@dataclass(frozen=True)
class Fusion(BaseAttack):
    """A weighted sum of standardised scores. `parts` and `shares` are the attacks and their weights that were decided
    on; `centre` and `spread` belong to the fitted copy."""

    attacks: tuple[str, ...] | None = option_of(schema.FusionSection, "attacks")
    weights: tuple[float, ...] | None = option_of(schema.FusionSection, "weights")
    _: KW_ONLY
    parts: tuple[BaseAttack, ...] = ()
    shares: tuple[float, ...] = ()
    centre: tuple[float, ...] | None = None
    spread: tuple[float, ...] | None = None
    fitted_on: ClassVar[tuple[FittedOn, ...]] = ("nonmembers",)

    def configured(self, audit: schema.AuditSection) -> Self:
        """With equal weights unless given."""
        asked = audit.fusion if self.attacks is None else schema.FusionSection(attacks=self.attacks)
        names, weights = asked.attacks, self.weights or asked.weights or (1.0,) * len(asked.attacks)
        if len(weights) != len(names):
            what = f"fusion: {len(weights)} weights for {len(names)} attacks"
            raise FedauditError("attack-options", what, "Give one for each.")
        return replace(self, parts=tuple(_part(name, audit) for name in names), shares=weights)

    @property
    def every_round(self) -> bool:
        return any(part.every_round for part in self.parts)

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
            self.parts, self.shares, Joined.split(features), self.centre, self.spread, strict=True
        ):
            # A part that is constant over non-members (for example, because it has seen too few rounds) adds nothing.
            total += weight * (part.score(own) - centre) / (spread if spread > 0 else 1.0)
        return total


def known(scores: Floats) -> Floats:
    """The scores without NaN; all of them if all are NaN."""
    defined = ~np.isnan(scores)
    return scores[defined] if defined.any() else scores


def _part(name: str, audit: schema.AuditSection) -> BaseAttack:
    """One of the attacks that are added up. It must be able to score known non-members after any round."""
    part = made(name, audit)
    if isinstance(part, Fusion) or part.question not in ("record", "source"):
        known = [each for each, (entry, _) in ATTACKS.short_forms.items() if entry.make is not Fusion]
        raise FedauditError("unknown-attack", f"audit.fusion cannot use {name!r}", suggest(name, known))
    if "shadow" in part.fitted_on:
        raise FedauditError("fusion-part", f"audit.fusion cannot use {name!r}: it needs a shadow model", _OTHER_PART)
    if part.deferred and not isinstance(part, ReferenceAttack):  # references train in every round, asked or not
        what = f"audit.fusion cannot use {name!r}: it looks only at the last model, at the end of the audit"
        raise FedauditError("fusion-part", what, _OTHER_PART)
    return part
