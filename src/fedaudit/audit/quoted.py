"""The headlines: the strongest finding of each vantage, and which parties are more exposed than others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.case import Case, Estimates
from fedaudit.audit.groups import Grouping, Sharing
from fedaudit.audit.settings import of_membership
from fedaudit.stats import party_differences
from fedaudit.stats.strongest import Quoted, Shares, Speaker, chosen, listen, models_of
from fedaudit.types import Headline, MoreExposed, Notice, Vantage, notice


def headlines(case: Case) -> Quoted:
    """The strongest finding of each vantage."""
    usable = {vantage: attack for vantage in case.settings.vantages if (attack := _usable(case, vantage))}
    places = [
        Speaker(
            vantage.value,
            attack.name,
            model,
            seen=tuple(map(id, sights)),
            primary=attack is usable[vantage],
            pooled=partial(case.pooled, attack, sights),
        )
        for vantage in usable
        for model in models_of(vantage)
        for attack in case.alive(vantage, model)
        if of_membership(attack)
        for sights in [case.outlooks.of(vantage, model)]
    ]
    heard, looked_at = listen(places, case.settings.confidence, 1 + len(case.fprs), case.blamed_on)
    found = chosen(heard, looked_at.all)
    bounds = Shares.among(case.settings.confidence, looked_at.primaries, looked_at.others)
    proved = [replace(h, estimates={**h.estimates, **_bound(case, h, bounds)}) for h in found.headlines]
    return replace(found, headlines=proved)


def _usable(case: Case, vantage: Vantage) -> BaseAttack | None:
    """The primary attack of a vantage; if its scores cannot be computed it has failed, and the next one takes over."""
    while attack := case.primary(vantage):
        with case.blamed_on(attack.name):
            for model in models_of(vantage):
                if attack in case.settings.on(vantage, model):
                    case.pooled(attack, case.outlooks.of(vantage, model), case.settings.confidence)
            return attack
    return None


def _bound(case: Case, headline: Headline, shares: Shares) -> Estimates:
    """What the run proves, if fair coins let it. It pays for the choice of the quoted attack and holds for all vantages
    at once, because a guarantee may be held against each."""
    attack = next(attack for attack in case.settings.attacks if attack.name == headline.attack)
    sights = case.outlooks.of(Vantage(headline.vantage), headline.model)
    return case.beside(attack, sights, shares.of(not headline.primary))


def compared_parties(case: Case, parts: Grouping) -> list[MoreExposed]:
    """Parties that are certainly more exposed to the primary attack than the others, and exposed at all: as groups are
    compared, with which they share the error."""
    confidence = Sharing.among(case, parts).of_party
    found: list[MoreExposed] = []
    for vantage, model in case.settings.watched():
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
            for d in party_differences(blocks, confidence, sharing=1)
            if d.low > 0 and d.own_low > 0.5
        ]
    return found


def more_exposed(found: MoreExposed) -> Notice:
    return notice("more-exposed", **{name: value for name, value in vars(found).items() if name != "vantage"})
