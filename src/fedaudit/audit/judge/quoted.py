"""The headlines: the primary attack of each vantage, and which parties are more exposed to it than others."""

from __future__ import annotations

from collections.abc import Sequence

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.vantage import MODELS
from fedaudit.audit.judge.case import Case
from fedaudit.audit.judge.coins import NAME, one_run
from fedaudit.audit.judge.sentences import Beyond
from fedaudit.audit.score import cannot_fit
from fedaudit.audit.settings import HEADLINE_FPR
from fedaudit.stats import party_differences
from fedaudit.stats.wording import fpr_of
from fedaudit.types import Estimate, Headline, ModelKind, Vantage


def headlines(case: Case) -> tuple[list[Headline], list[str]]:
    """The headline of each vantage, and notices where a server's two kinds of models could not be compared by TPR."""
    found: list[Headline] = []
    notices: list[str] = []
    for vantage in case.settings.vantages:
        attack = case.primary(vantage)
        while attack:
            with case.blamed_on(attack.name):
                headline, by_auc = _headline(case, vantage, attack)
                found.append(headline)
                notices += by_auc
                break
            attack = case.primary(vantage)
    return found, notices


def _headline(case: Case, vantage: Vantage, attack: BaseAttack) -> tuple[Headline, list[str]]:
    """A server's headline is the stronger of its two kinds of models, corrected for the choice.

    The two are compared by TPR if both have one, otherwise by AUC.
    """
    models = [model for model in _models(vantage) if attack in case.settings.on(vantage, model)]
    confidence = 1 - (1 - case.settings.confidence) / len(models)  # Bonferroni over what is compared
    found = {model: case.pooled(attack, case.panels.of(vantage, model), confidence) for model in models}
    rate = f"tpr@{HEADLINE_FPR:g}"
    asked = HEADLINE_FPR in case.fprs
    without = [model for model in models if asked and found[model][rate].value is None]
    notices = [
        f"{vantage.value}: {attack.name} on {model} models has no TPR at {HEADLINE_FPR:.0%} FPR "
        f"({found[model][rate].reason}), so its {len(models)} kinds of models were compared by AUC."
        for model in (without if len(models) > 1 else ())
    ]

    def strength(model: ModelKind) -> list[float]:
        by = [rate, "auc"] if asked and not without else ["auc"]
        return [value if (value := found[model][name].value) is not None else -1.0 for name in by]

    best = max(models, key=strength)
    # The bound may be held against a guarantee from any vantage: it holds for all of them at once.
    shared = 1 - (1 - confidence) / len(case.settings.vantages)
    found[best] |= one_run(case, attack, case.panels.of(vantage, best), shared)
    return Headline(vantage.value, attack.name, best, found[best], len(models)), notices


def beyond_chance(case: Case, quoted: Sequence[Headline]) -> dict[str, list[Beyond]]:
    """By vantage, the attacks beside the quoted one that found more than chance, the error shared among all of them.

    Asked only where the quoted attack did not: "nothing was found" is about everything that was tried.
    """
    found: dict[str, list[Beyond]] = {}
    for headline in quoted:
        if any(_more_than_chance(estimate) for name, estimate in headline.estimates.items() if name != NAME):
            continue
        vantage = Vantage(headline.vantage)
        tried = [
            (attack, model)
            for model in _models(vantage)
            for attack in case.alive(vantage, model)
            if attack.question != "attribute"
        ]
        looked_at = len(tried) * (1 + len(case.fprs))
        confidence = 1 - (1 - case.settings.confidence) / max(looked_at, 1)
        for attack, model in tried:
            with case.blamed_on(attack.name):
                again = case.pooled(attack, case.panels.of(vantage, model), confidence)
                more = [estimate for estimate in again.values() if _more_than_chance(estimate)]
                beyond = [Beyond(attack.name, model, estimate, looked_at) for estimate in more[:1]]
                found.setdefault(headline.vantage, []).extend(beyond)
    return found


def _more_than_chance(estimate: Estimate) -> bool:
    chance = fpr_of(estimate.name) or 0.5
    return estimate.low is not None and estimate.low > chance


def _models(vantage: Vantage) -> list[ModelKind]:
    """The kinds of models that a vantage sees; a server receives the global ones as well."""
    return ["local", "global"] if vantage is Vantage.SERVER else [MODELS[vantage]]


def compared_parties(case: Case) -> list[str]:
    """Parties that are more exposed than the others to the primary attack. All comparisons share the error."""
    watched = case.settings.watched()
    confidence = 1 - (1 - case.settings.confidence) / len(watched)
    found = []
    for vantage, model in watched:
        attack = case.primary(vantage)
        if attack is None or attack not in case.settings.on(vantage, model):
            continue
        sights = {party: case.panels.sight(vantage, model, party) for party in case.parties(model)}
        seen = {party: sight for party, sight in sights.items() if case.scores.defined(sight, attack)}
        blocks = {party: case.scores.block(sight, attack, party) for party, sight in seen.items()}
        found += [
            f"{d.party} is more exposed than the others: {attack.name} on {model} models has AUC {d.own:.3f} there "
            f"and {d.others:.3f} elsewhere (difference {d.value:.3f}, {d.low:.3f}-{d.high:.3f}; "
            f"{case.settings.confidence:.0%} for all {len(blocks)} parties together)."
            for d in party_differences(blocks, confidence)
            if d.low > 0
        ]
    return found


def unseen_parties(case: Case) -> list[str]:
    """How many parties took part too rarely to be judged. They are not in the pooled local results."""
    attack, local = case.primary(Vantage.SERVER), case.panels.local
    if Vantage.SERVER not in case.settings.vantages or attack is None or not local:
        return []
    unseen = [sight for sight in local.values() if not case.scores.defined(sight, attack)]
    unfit = sum(cannot_fit(sight, attack) for sight in unseen)
    seldom, whole = len(unseen) - unfit, f"of {len(local)} parties"
    said = [f"{seldom} {whole} took part too seldom to judge their local models: left out."] if seldom else []
    few = f"{unfit} {whole} have too few known non-members to fit {attack.name} on their local models: left out."
    return [*said, few] if unfit else said
