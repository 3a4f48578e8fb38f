"""Adversaries with their own data and models: what they get before training, and which requests are refused."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedaudit.adversary import attacks
from fedaudit.adversary.attacks.attribute import ATTRIBUTE, AttributeGuess
from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.signals.references import is_outside
from fedaudit.audit.observer import Asked
from fedaudit.audit.shadows import PLACES, Shadow, own_of_party, split_own
from fedaudit.config.schema import AuditSection, Config
from fedaudit.data.partition import reserve
from fedaudit.errors import FedauditError
from fedaudit.questions import asked_by, every
from fedaudit.questions.canary.options import CanarySection
from fedaudit.types import Dataset, Game, Records

SERIES = ("gradient-series", "logit-series", "cs-mia")  # what an adversary with a shadow model does unless told
LARGEST_DESIGN = 0.2  # of the data, set aside to craft canaries with


def choose(audit: AuditSection, names: Sequence[str] | None) -> list[BaseAttack]:
    """The named attacks (None: the default ones), with the options that [audit] gives them. Attacks on people are
    refused in a game about records, and the other way round."""
    guessing = ATTRIBUTE in (names or ())
    if guessing and audit.attribute is None:
        raise FedauditError(
            "no-attribute",
            "the attack 'attribute' guesses a hidden attribute, but the configuration names none",
            'Set [audit.attribute] name, and audit.adversary to "agg-sh" or "do-sh".',
        )
    no_attacks = {ATTRIBUTE, *asked_by()}
    others = None if names is None else [_asked(audit, name) for name in names if name not in no_attacks]
    found = attacks.choose(others, audit)
    check_unit(audit, found)
    return [*found, AttributeGuess()] if guessing else found


def _asked(audit: AuditSection, name: str) -> str:
    """An attack as the configuration names it: the user's own as "package.module:name". A trace has just the names."""
    own = [asked for asked in audit.attacks or () if ":" in asked and asked != name]
    return next((asked for asked in own if attacks.made(asked).name == name), name)


def looking(audit: AuditSection, names: Sequence[str] | None) -> dict[str, Asked]:
    """The questions that look for themselves: those of [audit.questions], and those that names in audit.attacks ask."""
    found: dict[str, Asked] = {}
    for question in every().values():
        by_name = [name for name in names or () if name in question.asked_by]
        given = (audit.questions or {}).get(question.name)
        if by_name or given is not None:
            asked = question.ask(by_name, given or {})
            found |= {} if asked is None else {question.name: asked}
    return found


def chosen(config: Config, recorded: Sequence[str] = ()) -> list[BaseAttack]:
    """The attacks asked for. An adversary brings attacks of its own, and series attacks need an adversary; all others
    are kept beside them."""
    audit = config.audit
    asked = choose(audit, audit.attacks if audit.attacks is not None else list(recorded) or None)
    check(audit, asked)
    if audit.adversary is None:
        return asked
    series = [attack for attack in asked if "shadow" in attack.fitted_on and not isinstance(attack, AttributeGuess)]
    others = [attack for attack in asked if "shadow" not in attack.fitted_on]
    if not series and not (audit.attacks and audit.attribute):
        series = attacks.choose(SERIES, audit)
    return [*others, *series, *([AttributeGuess()] if audit.attribute else [])]


def check_unit(audit: AuditSection, asked: Sequence[BaseAttack]) -> None:
    """Refuses attacks on records in a game about people, and the other way round."""
    people = audit.unit == "subject"
    for attack in asked:
        if (attack.question == "subject") == people:
            continue
        if people:
            suited = ", ".join(attacks.every("subject"))
            todo = f'Use {suited}; or set audit.unit = "record".'
            raise FedauditError("attack-unit", f"{attack.name} asks about records, and this game about people", todo)
        todo = 'Set federation.partition = "subjects" and no audit.unit, or name another attack.'
        raise FedauditError("attack-unit", f"{attack.name} asks about people, and this game about records", todo)
    if people and (audit.adversary or audit.attribute):
        what = "audit.adversary and [audit.attribute] are about records, and this game is about people"
        raise FedauditError("attack-unit", what, 'Remove them, or set audit.unit = "record".')


def check(audit: AuditSection, asked: Sequence[BaseAttack]) -> None:
    """Refuses attacks without the adversary they need, and an adversary without its vantage."""
    if audit.attribute and audit.adversary not in ("agg-sh", "do-sh"):
        raise FedauditError(
            "no-adversary",
            "guessing an attribute needs a semi-honest adversary with a shadow model, but none is set",
            'Set audit.adversary to "agg-sh" or "do-sh".',
        )
    if audit.adversary is None:
        if learning := [attack.name for attack in asked if "shadow" in attack.fitted_on]:
            raise FedauditError(
                "no-adversary",
                f"{learning[0]} needs an adversary with a shadow model, but none is set",
                'Set audit.adversary to "agg-sh", "agg-mal" or "do-sh".',
            )
        return
    vantage, _ = PLACES[audit.adversary]
    if vantage not in audit.vantages:
        raise FedauditError(
            "adversary-vantage",
            f"the adversary {audit.adversary!r} needs the vantage {vantage.value!r}",
            f"Add {vantage.value!r} to audit.vantages.",
        )


def reserved(dataset: Dataset, using: Sequence[BaseAttack], config: Config) -> tuple[Dataset, Records | None]:
    """Sets aside records for an adversary outside the federation, as many as a party gets; more for a design pool."""
    outside = any(is_outside(signal) for attack in using for signal in attack.signals)
    crafting = "canife" in (config.audit.attacks or ())
    if not outside and not crafting and config.audit.adversary not in ("agg-sh", "agg-mal"):
        return dataset, None
    federation = config.federation
    rng = np.random.default_rng([federation.seed, 1])
    share = 1 / (federation.parties + 1)
    records, own = reserve(dataset.records, max(share, design_share(config)) if crafting else share, rng)
    return replace(dataset, records=records), own


def design_share(config: Config) -> float:
    """The share of the data that makes mock parties as large as the real ones, without using a record twice. Where
    that is too much, mock parties have records in common."""
    from fedaudit.questions.canary.parties import OUTSIDE

    federation, asked = config.federation, config.audit.canary or CanarySection()
    mine = (federation.member_subjects or federation.members) / (federation.parties + 1)
    return min((asked.pool + OUTSIDE) * mine, LARGEST_DESIGN)


def shadow(config: Config, game: Game, own: Records | None, training: Mapping[str, Any]) -> Shadow | None:
    """The adversary's shadow: the first party's model for do-sh, otherwise one trained on the reserved data."""
    adversary, federation = config.audit.adversary, config.federation
    if adversary is None:
        return None
    if adversary == "do-sh":
        return Shadow(adversary, own_of_party(game, game.first), game.first)
    assert own is not None
    share = federation.member_subjects or federation.members
    own_game = split_own(own, share, federation.seed, bool(federation.split_subjects))
    return Shadow(adversary, own_game, None, training, federation.seed)
