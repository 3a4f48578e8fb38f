"""What a run itself found against the differential privacy that it claims: by fair coins, or by canaries.

A claim that the audit has refuted is no ground for a verdict. Where the proof is about the whole training it also says
how large epsilon is at least; a proof about one round, or noise that is missing, only says that the claim is wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fedaudit.audit.judge.canary_sentences import refuted, too_little_noise
from fedaudit.privacy.statement import Statement
from fedaudit.results.coins import ONE_RUN, held
from fedaudit.results.document import Document
from fedaudit.types import AuditResult, Unit


@dataclass(frozen=True)
class Against:
    """`at_least`: what epsilon of the whole training is proved to be; 0 where nothing is proved about that."""

    why: str
    at_least: float = 0.0


def against(claim: Statement, document: Document) -> Against | None:
    """The strongest evidence against one claim of a run, if there is any."""
    found = [*_by_coins(claim, document), *_by_canaries(claim, document)]
    return max(found, key=lambda one: one.at_least, default=None)


def _by_coins(claim: Statement, document: Document) -> Iterator[Against]:
    federation = document.run.config.get("federation", {})
    if federation.get("coins") is not True:
        return
    unit: Unit = "subject" if federation.get("partition") == "subjects" else "record"
    for one in held(unit, document.headlines, document.run.guarantee):
        if one.refutes and one.claim == claim and one.bound.low is not None:
            yield Against(_proved(one.headline.attack, one.bound.low), one.bound.low)


def _by_canaries(claim: Statement, document: Document) -> Iterator[Against]:
    if claim.unit != "user":
        return
    for entry in document.results:
        if entry.attack == "one-shot" and (bound := one_run_above(entry, claim.epsilon)) is not None:
            yield Against(_proved(entry.attack, bound), bound)
        if entry.attack != "canife":
            continue
        if of_a_round := refuted(entry.estimates):
            yield Against(
                f"the audit refutes this claim: canife proves an epsilon of {of_a_round.value:.3g} at least for one "
                "round, and less is claimed"
            )
        if too_little_noise(entry.estimates, claim.process.noise):
            yield Against("the audit contradicts this claim: canife finds less noise in the sum than is claimed")


def one_run_above(entry: AuditResult, claimed: float | None) -> float | None:
    """What the coins of random canaries prove about the whole training, if that is more than is claimed."""
    proved = entry.estimates.get(ONE_RUN)
    if proved is None or proved.low is None or claimed is None or proved.low <= claimed:
        return None
    return proved.low


def _proved(attack: str, bound: float) -> str:
    return f"the audit refutes this claim: {attack} proves an epsilon of {bound:.4g} at least"
