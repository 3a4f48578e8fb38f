"""The attacks, each in the module of its paper, where it registers itself with its options. Here they are chosen by
name.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.config.attack_registry import (
    ATTACKS,
    BLIND,
    STAND_IN,
    OwnAttackOptions,
    arguments,
    options_of,
)
from fedaudit.config.code import imported
from fedaudit.config.registry import Options
from fedaudit.config.schema import AuditSection, explain
from fedaudit.errors import OF_OTHERS, FedauditError
from fedaudit.types import Unit

__all__ = ["ATTACKS", "DEFAULTS", "choose", "every", "made"]

# What is run where no attack is named, in this order: everything that costs at most one local epoch a round.
DEFAULTS: dict[Unit, tuple[str, ...]] = {
    "record": (
        *("matched-filter", "round-gain", "fta-confidence", "fta-loss", "fta-logit", "loss", "modified-entropy"),
        *("fed-loss", "back-front-diff", "back-front-ratio", "delta-diff", "delta-ratio", "gradient-norm"),
        *("gradient-cosine", "gradient-diff", "gradient-norm-all", "fusion"),
        *("gap", "gap-rounds"),
    ),
    "subject": ("subject-loss", "subject-rounds", "subject-fta", "subject-cosine", "subject-matched"),
}


def choose(names: Iterable[str] | None, audit: AuditSection | None = None) -> list[BaseAttack]:
    """The named attacks, or the default ones, with what [audit] says of them. `blind` is left out, because the auditor
    runs it itself."""
    audit = audit or AuditSection()
    wanted = DEFAULTS[audit.unit or "record"] if names is None else tuple(dict.fromkeys(names))
    chosen = [made(name, audit) for name in wanted if name != BLIND]
    called = [attack.name for attack in chosen]
    if twice := next((name for name in called if called.count(name) > 1), None):
        what = f"two attacks are called {twice!r}"
        raise FedauditError("attack-name", what, "Leave one of them out, rename it, or give it other options.")
    return chosen


def every(*questions: str) -> list[str]:
    """All short forms of attacks on these questions."""
    mine = {name: getattr(entry.make, "question", None) for name, (entry, _) in ATTACKS.short_forms.items()}
    return [name for name, question in mine.items() if question in questions]


# ------------------------------------------------------------------ from a name to an attack

# One of ours, of an installed package (entry points in the group `fedaudit.attacks`), or the
# user's own, as "package.module:name".
#
# What comes from outside names a class of attacks, or a function that returns one. It runs only on request, because
# nobody here knows what it costs.


ATTACKS.register(STAND_IN, "your own: a class of attacks, or a function that returns one", OwnAttackOptions)(imported)


def made(name: str, audit: AuditSection | None = None) -> BaseAttack:
    """The attack that a name stands for: a short form, or a name with options. What these do not set is as [audit]
    says, or as it is by default. Nobody may take a name of ours."""
    try:
        entry, options = ATTACKS.understood(name)
        make = entry.make
        if isinstance(options, OwnAttackOptions):
            make = imported(options.name, "attack-import")
            options = options_of(make).model_validate({**options.options, "name": options.name})
    except ValidationError as error:
        raise explain(error, f"attack {name}") from None
    attack = _checked(name, make, options)
    owner, _ = ATTACKS.short_forms.get(attack.name, (entry, None))
    if owner is not entry:
        raise FedauditError("attack-name", f"{name!r} is called {attack.name!r}, like one of ours", "Rename it.")
    return attack.configured(audit or AuditSection())


def _checked(name: str, make: Any, options: Options) -> BaseAttack:
    """What others wrote may raise anything, or be anything."""
    try:
        attack: object = make(**arguments(make, options))
    except FedauditError:
        raise
    except OF_OTHERS as error:
        what = f"the attack {name!r} cannot be made: {type(error).__name__}: {error}"
        raise FedauditError("attack-factory", what, "Let every option have a default.") from error
    if not isinstance(attack, BaseAttack):
        what = f"{name!r} makes {type(attack).__name__}"
        raise FedauditError("attack-factory", what, "Derive it from fedaudit.adversary.attacks.base.BaseAttack.")
    try:
        attack.reduce(1)
    except OF_OTHERS as error:
        what = f"the attack {name!r} cannot keep anything of the rounds: reduce(1) raises {type(error).__name__}"
        raise FedauditError("attack-factory", what, "Let reduce(n) return a Kept for n candidates.") from error
    return attack
