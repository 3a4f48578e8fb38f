"""What does one run prove about epsilon? Asked where fair coins decided who was trained on (`federation.coins`).

It asks nothing of its own: every attack on membership guesses the coins, and this room says what its guesses prove.
What was proved is compared with what is claimed only where both speak of the same unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedaudit.questions import Against, Ground, Metric, Preparation, Question
from fedaudit.types import Estimate, Headline, Notice, Unit, notice, warning

if TYPE_CHECKING:
    from fedaudit.audit.case import Case
    from fedaudit.privacy.statement import Statement
    from fedaudit.report.shapes import PageSection
    from fedaudit.report.values import Results
    from fedaudit.results.document import Document

ONE_RUN = "epsilon-one-run"
HEAD = ("seen from", "attack", "models", "proved: epsilon at least", "most provable", "claimed", "coins", "confidence")


@dataclass(frozen=True)
class Flipped:
    """A fair coin decided about each unit whether it was trained on, except those that calibrate."""

    unit: Unit  # record or subject
    delta: float = 1e-5  # at which epsilon is bounded


class Coins(Question):
    name = "coins"
    about = "what does this one run prove about epsilon?"
    unit = "record"
    how = "Set federation.coins = true."
    metrics = (Metric(ONE_RUN, "epsilon, proved by this run", "epsilon", chance=0.0, kind="proved", most=float("inf")),)

    def prepare(self, ground: Ground) -> Preparation | None:
        federation = ground.config.federation
        if not federation.coins:
            return None
        if federation.partition == "subjects":
            return Preparation(Flipped("subject"))
        return Preparation(Flipped("record"), () if federation.split_subjects is None else (notice("coins-split"),))

    def beside(self, case: Case, attack: Any, sights: Any, confidence: float | None) -> dict[str, Estimate]:
        from fedaudit.questions.coins.judge import one_run

        return one_run(case, attack, sights, confidence)

    def told(self, asked: Flipped, headlines: Sequence[Headline]) -> list[Notice]:
        from fedaudit.questions.coins.judge import quoted

        return quoted(headlines, asked.unit)

    def warned(self, asked: Flipped, headlines: Sequence[Headline], claim: Statement | None) -> list[Notice]:
        """A warning for each bound that lies above what was claimed."""
        return [
            warning(
                "claim-refuted",
                defence=one.claim.defence,
                unit=asked.unit,
                claimed=one.claim.epsilon,
                delta=one.claim.delta,
                attack=one.headline.attack,
                vantage=one.headline.vantage,
                epsilon=one.bound.low,
            )
            for one in _held(asked.unit, headlines, claim)
            if one.refutes and one.claim is not None
        ]

    def against(self, claim: Statement, document: Document) -> list[Against]:
        """What the coins of this run prove above the claim."""
        unit = _flipped(document.run.config)
        found = _held(unit, document.headlines, document.run.guarantee) if unit else []
        return [
            refutation(one.headline.attack, one.bound.low)
            for one in found
            if one.refutes and one.claim == claim and one.bound.low is not None
        ]

    def sections(self, results: Results) -> list[PageSection]:
        """None for a run without coins."""
        from fedaudit.report.shapes import PageSection, Panel, Table

        unit = _flipped(results.run.config)
        found = _held(unit, results.headlines, results.run.guarantee) if unit else []
        if unit is None or not found:
            return []
        note = f"{found[0].bound.method}. The bounds hold for all rows at once."
        table = Table(HEAD, [_row(one) for one in found], note)
        tone = "warn" if any(one.refutes for one in found) else ""
        panel = Panel(_lead(found, unit), tables=[("", table)], tone=tone)
        return [PageSection("coins", "Fair coins", "Fair coins", [panel])]


QUESTION = Coins()


def refutation(attack: str, bound: float) -> Against:
    return Against(f"the audit refutes this claim: {attack} proves an epsilon of {bound:.4g} at least", bound)


@dataclass(frozen=True)
class _ProvedBound:
    """A headline's bound, held against the claim about the same unit, if there is one."""

    headline: Headline
    bound: Estimate
    claim: Statement | None

    @property
    def refutes(self) -> bool:
        claim, low = self.claim, self.bound.low
        return claim is not None and claim.epsilon is not None and low is not None and low > claim.epsilon


def _held(unit: Unit, headlines: Sequence[Headline], claim: Statement | None) -> list[_ProvedBound]:
    """The bounds of the quoted attacks, which hold for all of them at once. A coin decides whether a unit is there, so
    a claim must have add-remove adjacency."""
    statements = [] if claim is None else [claim, *claim.further]
    claimed = next((s for s in statements if s.unit == unit and s.adjacency == "add-remove"), None)
    found = [(headline, headline.estimates.get(ONE_RUN)) for headline in headlines]
    return [_ProvedBound(headline, bound, claimed) for headline, bound in found if bound is not None]


def _flipped(config: Mapping[str, Any]) -> Unit | None:
    """The unit about which this run flipped coins; None if it flipped none."""
    federation = config.get("federation")
    if not isinstance(federation, Mapping) or federation.get("coins") is not True:
        return None
    return "subject" if federation.get("partition") == "subjects" else "record"


def _row(one: _ProvedBound) -> list[str]:
    from fedaudit.report.words import adversary
    from fedaudit.stats.wording import NONE, confidence, count

    bound, claim = one.bound, one.claim
    proved = f"{bound.value:.2f}" if bound.value is not None else f"{NONE} ({bound.reason})"
    most = NONE if bound.ceiling is None else f"{bound.ceiling:.2f}"
    claimed = NONE if claim is None or claim.epsilon is None else f"{claim.epsilon:.4g} at delta {claim.delta:g}"
    where = adversary(one.headline.vantage).title, one.headline.attack, one.headline.model
    return [*where, proved, most, claimed, count(bound.n_pos + bound.n_neg), confidence(bound)]


def _lead(found: list[_ProvedBound], unit: Unit) -> str:
    one = "record" if unit == "record" else "person"
    told = (
        f"A fair coin decided about each {one} whether it was trained on. How often an adversary guesses these coins "
        "rightly proves a lower limit of epsilon, whatever the training did."
    )
    if any(each.refutes for each in found):
        return f"{told} What was proved lies above what is claimed: the claim of differential privacy is refuted."
    if found[0].claim is None:
        return f"{told} There is no claim about one {one} to hold it against."
    return (
        f"{told} It lies below what is claimed, as it must if the claim is true. The distance between the two is what "
        "neither proves: a stronger attack may raise the one, a finer account may lower the other."
    )
