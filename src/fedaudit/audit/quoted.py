"""The headlines: the strongest finding of each vantage, and which parties are more exposed than others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.vantage import MODELS
from fedaudit.audit.case import Case, Estimates
from fedaudit.audit.score import cannot_fit
from fedaudit.audit.settings import HEADLINE_FPR, of_membership
from fedaudit.stats import party_differences
from fedaudit.stats.strongest import Heard, Shares, grade, strongest
from fedaudit.stats.wording import main_tpr
from fedaudit.types import Headline, ModelKind, MoreExposed, Notice, Vantage, notice


@dataclass(frozen=True)
class Quoted:
    """The headline of each vantage with what the primary attack said there, and the TPR that all of them quote."""

    headlines: Sequence[Headline]
    primary: Mapping[str, Heard]  # by vantage
    average: Mapping[str, Heard]  # by vantage, the attack that certainly has the largest AUC
    name: str | None
    notices: Sequence[Notice] = ()


def headlines(case: Case) -> Quoted:
    """The strongest finding of each vantage."""
    usable = {vantage: attack for vantage in case.settings.vantages if (attack := _usable(case, vantage))}
    heard, results = _heard(case, usable)
    found = chosen(heard, len(results[True] | results[False]))
    bounds = Shares.among(case.settings.confidence, len(results[True]), len(results[False]))
    proved = [replace(h, estimates={**h.estimates, **_bound(case, h, bounds)}) for h in found.headlines]
    notices = [line for vantage in heard for line in _by_auc(case, vantage, heard[vantage])]
    return replace(found, headlines=proved, notices=notices)


def chosen(heard: Mapping[Vantage, Sequence[Heard]], looked_at: int) -> Quoted:
    """What is quoted of all that was heard. `looked_at`: how many results the attacks beside the primary ones share
    their error with."""
    name = main_tpr([one.estimates for all_of in heard.values() for one in all_of if one.primary])
    found: list[Headline] = []
    primary: dict[str, Heard] = {}
    average: dict[str, Heard] = {}
    for vantage, all_of in heard.items():
        best = strongest(all_of, name)
        average[vantage.value] = max(all_of, key=lambda one: one.strength(None))
        primary[vantage.value] = strongest([one for one in all_of if one.primary], name)
        chosen_from = sum(one.primary for one in all_of) if best.primary else looked_at
        tone = best.tone(name)
        quoted = Headline(vantage.value, best.attack, best.model, best.estimates, chosen_from, tone=tone)
        quoted = replace(quoted, grade=grade(tone, best.decisive.get(name or "")))
        found.append(quoted if best.primary else replace(quoted, primary=primary[vantage.value].attack))
    return Quoted(found, primary, average, name)


def _usable(case: Case, vantage: Vantage) -> BaseAttack | None:
    """The primary attack of a vantage; if its scores cannot be computed it has failed, and the next one takes over."""
    while attack := case.primary(vantage):
        with case.blamed_on(attack.name):
            for model in _models(vantage):
                if attack in case.settings.on(vantage, model):
                    case.pooled(attack, case.outlooks.of(vantage, model), case.settings.confidence)
            return attack
    return None


def _heard(
    case: Case, usable: Mapping[Vantage, BaseAttack]
) -> tuple[dict[Vantage, list[Heard]], dict[bool, set[object]]]:
    """By vantage, everything that was run there, with the error shared among all of it; and which results that are, the
    primary ones (True) and the others. What several vantages see is one: a server's global models are any party's.
    """
    places = [
        (vantage, attack, model, case.outlooks.of(vantage, model))
        for vantage in usable
        for model in _models(vantage)
        for attack in case.alive(vantage, model)
        if of_membership(attack)
    ]
    results: dict[bool, set[object]] = {True: set(), False: set()}
    for vantage, attack, _, sights in places:
        results[attack is usable[vantage]].add((attack.name, *map(id, sights)))
    figures = 1 + bool(case.fprs)  # the AUC, and the TPR that is quoted
    shares = Shares.among(case.settings.confidence, figures * len(results[True]), figures * len(results[False]))
    heard: dict[Vantage, list[Heard]] = {vantage: [] for vantage in usable}
    for vantage, attack, model, sights in places:
        primary = attack is usable[vantage]
        with case.blamed_on(attack.name):
            decisive = case.pooled(attack, sights, shares.of(primary))
            chosen = 1 - (1 - case.settings.confidence) / _kinds(case, vantage, attack)
            own = case.pooled(attack, sights, chosen) if primary else decisive
            heard[vantage].append(Heard(attack.name, model, own, decisive, primary))
    return {vantage: said for vantage, said in heard.items() if any(one.primary for one in said)}, results


def _kinds(case: Case, vantage: Vantage, attack: BaseAttack) -> int:
    """How many kinds of models the attack is run on there."""
    return sum(attack in case.settings.on(vantage, model) for model in _models(vantage))


def _bound(case: Case, headline: Headline, shares: Shares) -> Estimates:
    """What the run proves, if fair coins let it. It pays for the choice of the quoted attack and holds for all vantages
    at once, because a guarantee may be held against each."""
    attack = next(attack for attack in case.settings.attacks if attack.name == headline.attack)
    sights = case.outlooks.of(Vantage(headline.vantage), headline.model)
    return case.beside(attack, sights, shares.of(not headline.primary))


def _by_auc(case: Case, vantage: Vantage, heard: Sequence[Heard]) -> list[Notice]:
    """Where a server's two kinds of models cannot be compared, because one of them has no TPR."""
    rate, primary = f"tpr@{HEADLINE_FPR:g}", [one for one in heard if one.primary]
    without = [one for one in primary if HEADLINE_FPR in case.fprs and one.estimates[rate].value is None]
    return [
        notice(
            "judged-by-auc",
            vantage=vantage.value,
            attack=one.attack,
            model=one.model,
            fpr=HEADLINE_FPR,
            why=one.estimates[rate].reason,
        )
        for one in (without if len(primary) > 1 else ())
    ]


def _models(vantage: Vantage) -> list[ModelKind]:
    """The kinds of models that a vantage sees; a server receives the global ones as well."""
    return ["local", "global"] if vantage is Vantage.SERVER else [MODELS[vantage]]


def compared_parties(case: Case) -> list[MoreExposed]:
    """Parties that are more exposed than the others to the primary attack. All comparisons share the error."""
    watched = case.settings.watched()
    confidence = 1 - (1 - case.settings.confidence) / len(watched)
    found: list[MoreExposed] = []
    for vantage, model in watched:
        attack = case.primary(vantage)
        if attack is None or attack not in case.settings.on(vantage, model):
            continue
        sights = {party: case.outlooks.sight(vantage, model, party) for party in case.parties(model)}
        seen = {party: sight for party, sight in sights.items() if case.scores.defined(sight, attack)}
        blocks = {party: case.scores.block(sight, attack, party) for party, sight in seen.items()}
        found += [
            MoreExposed(
                party=d.party,
                vantage=vantage.value,
                model=model,
                attack=attack.name,
                own=d.own,
                others=d.others,
                value=d.value,
                low=d.low,
                high=d.high,
                confidence=case.settings.confidence,
            )
            for d in party_differences(blocks, confidence)
            if d.low > 0
        ]
    return found


def more_exposed(found: MoreExposed) -> Notice:
    return notice("more-exposed", **{name: value for name, value in vars(found).items() if name != "vantage"})


def unseen_parties(case: Case) -> list[Notice]:
    """How many parties took part too rarely to be judged. They are not in the pooled local results."""
    attack, local = case.primary(Vantage.SERVER), case.outlooks.local
    if Vantage.SERVER not in case.settings.vantages or attack is None or not local:
        return []
    unseen = [sight for sight in local.values() if not case.scores.defined(sight, attack)]
    unfit = sum(cannot_fit(sight, attack) for sight in unseen)
    seldom = len(unseen) - unfit
    said = [notice("parties-unseen", parties=seldom, of=len(local))] if seldom else []
    few = notice("parties-unfit", parties=unfit, of=len(local), attack=attack.name)
    return [*said, few] if unfit else said
