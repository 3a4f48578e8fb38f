"""From a name to an attack: one of ours, of an installed package (entry points in the group `fedaudit.attacks`), or the
user's own, as "package.module:name".

What comes from outside names a class of attacks, or a function that returns one. It runs only on request, because
nobody here knows what it costs.
"""

from typing import Any

from pydantic import ValidationError

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.config.attack_registry import (
    ATTACKS,
    STAND_IN,
    OwnAttackOptions,
    arguments,
    options_of,
)
from fedaudit.config.code import imported
from fedaudit.config.registry import Options
from fedaudit.config.schema import AuditSection, explain
from fedaudit.errors import OF_OTHERS, FedauditError

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
