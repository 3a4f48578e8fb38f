"""Attacks from outside: by "package.module:name", or by an entry point in the group `fedaudit.attacks`.

Both name a class of attacks that can be called without arguments, or a function that returns an attack. They run only
on request, because nobody here knows what they cost.
"""

from functools import cache
from typing import Any

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.config.code import imported
from fedaudit.config.registry import plugged_in
from fedaudit.errors import OF_OTHERS, FedauditError


@cache
def plugged() -> tuple[dict[str, Any], dict[str, str]]:
    """What installed packages offer, by name; and why some of it cannot be loaded."""
    return plugged_in("attacks")


def about(make: Any) -> str:
    """The first line of what its author wrote about it."""
    return next(iter((make.__doc__ or "an attack of a plug-in").strip().splitlines()))


def made(name: str) -> BaseAttack:
    """The attack that a plug-in's name or "package.module:name" stands for."""
    found, broken = plugged()
    if name in broken:
        what = f"the plug-in {name!r} cannot be used: {broken[name]}"
        raise FedauditError("unknown-attack", what, "Install it again, or leave it out.")
    make = imported(name, "attack-import") if ":" in name else found[name]
    try:
        attack: object = make()
    except OF_OTHERS as error:
        what = f"the attack {name!r} cannot be made: {type(error).__name__}: {error}"
        raise FedauditError("attack-factory", what, "Let it be called without arguments.") from error
    if not isinstance(attack, BaseAttack):
        what = f"{name!r} makes {type(attack).__name__}"
        raise FedauditError("attack-factory", what, "Derive it from fedaudit.adversary.attacks.base.BaseAttack.")
    try:
        attack.reduce(1)
    except OF_OTHERS as error:
        what = f"the attack {name!r} cannot keep anything of the rounds: reduce(1) raises {type(error).__name__}"
        raise FedauditError("attack-factory", what, "Let reduce(n) return a Kept for n candidates.") from error
    return attack
