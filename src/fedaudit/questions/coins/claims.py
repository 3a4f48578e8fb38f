"""What fair coins proved, beside what was claimed. The two are compared only where they speak of the same unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.privacy.statement import Statement
from fedaudit.questions import Against
from fedaudit.results.document import Document
from fedaudit.types import Estimate, Headline, Notice, Unit, warning

ONE_RUN = "epsilon-one-run"


def claimed_for(unit: Unit, claim: Statement | None) -> Statement | None:
    """The claim about this unit, if there is one with add-remove adjacency: a coin decides whether a unit is there."""
    statements = [] if claim is None else [claim, *claim.further]
    return next((s for s in statements if s.unit == unit and s.adjacency == "add-remove"), None)


@dataclass(frozen=True)
class Held:
    """A headline's bound, held against the claim about the same unit, if there is one."""

    headline: Headline
    bound: Estimate
    claim: Statement | None

    @property
    def refutes(self) -> bool:
        claim, low = self.claim, self.bound.low
        return claim is not None and claim.epsilon is not None and low is not None and low > claim.epsilon


def held(unit: Unit, headlines: Sequence[Headline], claim: Statement | None) -> list[Held]:
    """The bounds of the quoted attacks, which hold for all of them at once."""
    found = [(headline, headline.estimates.get(ONE_RUN)) for headline in headlines]
    return [Held(headline, bound, claimed_for(unit, claim)) for headline, bound in found if bound is not None]


def refuted(unit: Unit, headlines: Sequence[Headline], claim: Statement | None) -> list[Notice]:
    """A warning for each bound that lies above what was claimed."""
    return [
        warning(
            "claim-refuted",
            defence=one.claim.defence,
            unit=unit,
            claimed=one.claim.epsilon,
            delta=one.claim.delta,
            attack=one.headline.attack,
            vantage=one.headline.vantage,
            epsilon=one.bound.low,
        )
        for one in held(unit, headlines, claim)
        if one.refutes and one.claim is not None
    ]


def against(claim: Statement, document: Document) -> list[Against]:
    """What the coins of this run prove above the claim."""
    unit = flipped(document.run.config)
    found = held(unit, document.headlines, document.run.guarantee) if unit else []
    return [
        Against(proved(one.headline.attack, one.bound.low), one.bound.low)
        for one in found
        if one.refutes and one.claim == claim and one.bound.low is not None
    ]


def flipped(config: Mapping[str, Any]) -> Unit | None:
    """The unit about which this run flipped coins; None if it flipped none."""
    federation = config.get("federation")
    if not isinstance(federation, Mapping) or federation.get("coins") is not True:
        return None
    return "subject" if federation.get("partition") == "subjects" else "record"


def proved(attack: str, bound: float) -> str:
    return f"the audit refutes this claim: {attack} proves an epsilon of {bound:.4g} at least"
