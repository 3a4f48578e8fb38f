"""What canaries say about a claim: whether it is refuted, whether noise is missing, how good the canaries were."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import stats

from fedaudit.privacy.statement import Statement
from fedaudit.questions import Against, metric
from fedaudit.questions.canary.watch import ALIVE
from fedaudit.questions.coins.claims import ONE_RUN, proved
from fedaudit.results.document import Document
from fedaudit.types import AuditResult, Estimate, Floats, Notice, warning

ROUND, WHOLE = "epsilon-accountant-round", "epsilon-accountant"
WEAK = 0.99
RARE = 1e-3


def refuted(found: Mapping[str, Estimate]) -> Estimate | None:
    """The proved figure that lies above what is claimed for a round, if it does. Running canaries meet another model in
    every round, and only the e-process is proved there; with probes of one model, the union bound decides."""
    claimed = found[ROUND].value if ROUND in found else None
    deciding = found.get("epsilon-anytime", found.get("epsilon-bonferroni"))
    if claimed is None or deciding is None or deciding.value is None:
        return None
    return deciding if deciding.value > claimed else None


def whole_run_refuted(found: Mapping[str, Estimate]) -> list[Notice]:
    """A warning if the coins of random canaries prove more than is claimed for the whole training."""
    proved, claimed = (found[name].value if name in found else None for name in ("epsilon-one-run", WHOLE))
    if proved is None or claimed is None or proved <= claimed:
        return []
    confidence = found["epsilon-one-run"].confidence
    return [warning("run-refuted", epsilon=proved, confidence=confidence, claimed=claimed)]


def too_quiet(spread: Estimate, noise: float) -> bool:
    """Would the claimed noise alone give so small a spread less than once in a thousand audits?"""
    freedom = spread.n_pos + spread.n_neg - 2
    squares = freedom * ((spread.value or 0.0) / noise) ** 2
    return freedom > 0 and bool(stats.chi2.cdf(squares, freedom) < RARE)


def too_little_noise(found: Mapping[str, Estimate], noise: float) -> bool:
    """The same of stored figures. A canary meets as much of the noise as it has of the clip norm; the shortest that is
    alive has at least ALIVE of it."""
    spread, norm = found.get("score-sd"), found.get("canary-norm")
    if spread is None or spread.value is None:
        return False
    least = 1.0 if norm is None or norm.low is None else max(norm.low, ALIVE)
    return too_quiet(spread, noise * least)


def remarks(found: Mapping[str, Estimate], noise: float | None, norms: Floats) -> list[Notice]:
    """Warnings: a refuted claim, noise that is not there, canaries that are dead or weak. A canary meets as much of the
    noise as it has of the clip norm."""
    told, spread = list[Notice](), found["score-sd"]
    if bound := refuted(found):
        told.append(
            warning(
                "round-refuted",
                epsilon=bound.value,
                figure=bound.name,
                confidence=bound.confidence,
                present=bound.n_pos,
                absent=bound.n_neg,
                claimed=found[ROUND].value,
            )
        )
    dead = ~(norms >= ALIVE)
    expected = 0.0 if noise is None or dead.all() else noise * float(norms[~dead].min())
    if expected and spread.value is not None and too_quiet(spread, expected):
        much_less = spread.value < expected / 10
        told.append(warning("noise-missing", sd=spread.value, most=spread.high, expected=expected, none=much_less))
    elif noise is None and found["auc"].value == 1:
        told.append(warning("no-noise"))
    if dead.any():
        told.append(warning("canaries-dead", dead=int(dead.sum()), of=len(norms)))
    elif (norm := float(np.median(norms))) < WEAK:
        told.append(warning("canary-weak", norm=norm))
    return told


def epsilons(found: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """For the report: what is proved, what is estimated, what is claimed."""
    of_epsilon = [one for name, one in found.items() if metric(name).form == "epsilon" and one.value is not None]
    return {one.name: {"value": one.value, "low": one.low, "high": one.high} for one in of_epsilon}


def against(claim: Statement, document: Document) -> list[Against]:
    """What the canaries of this run found against a claim about whole parties."""
    found: list[Against] = []
    for entry in document.results if claim.unit == "user" else ():
        if entry.attack == "one-shot" and (bound := one_run_above(entry, claim.epsilon)) is not None:
            found.append(Against(proved(entry.attack, bound), bound))
        if entry.attack != "canife":
            continue
        if of_a_round := refuted(entry.estimates):
            found.append(
                Against(
                    f"the audit refutes this claim: canife proves an epsilon of {of_a_round.value:.3g} at least for "
                    "one round, and less is claimed"
                )
            )
        if too_little_noise(entry.estimates, claim.process.noise):
            why = "the audit contradicts this claim: canife finds less noise in the sum than is claimed"
            found.append(Against(why))
    return found


def one_run_above(entry: AuditResult, claimed: float | None) -> float | None:
    """What the coins of random canaries prove about the whole training, if that is more than is claimed."""
    bound = entry.estimates.get(ONE_RUN)
    if bound is None or bound.low is None or claimed is None or bound.low <= claimed:
        return None
    return bound.low
