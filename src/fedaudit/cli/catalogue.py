"""The lists of `fedaudit list`. Imports nothing heavy."""

from collections.abc import Mapping

from fedaudit.adversary import attacks
from fedaudit.adversary.attacks import plugins
from fedaudit.config.registry import FAMILIES, Family
from fedaudit.errors import FedauditError, suggest


def catalogue(what: str) -> list[tuple[str, str, str]]:
    """Name, sentence and keys of each."""
    if what == "attacks":
        named = [(name, entry.about) for name, entry in (attacks.REGISTRY | attacks.SHADOW | attacks.SUBJECT).items()]
        named += [(attacks.ATTRIBUTE, attacks.ATTRIBUTE_ABOUT), (attacks.BLIND, attacks.BLIND_ABOUT)]
        found, broken = plugins.plugged()
        named += [(name, plugins.about(make)) for name, make in found.items()] + _broken(broken)
        return [(name, about, "") for name, about in named]
    if what not in FAMILIES:
        raise FedauditError("unknown-list", f"there is no list of {what!r}", suggest(what, ["attacks", *FAMILIES]))
    return _entries(FAMILIES[what])


def _entries(family: Family) -> list[tuple[str, str, str]]:
    found = [
        (name, f"{entry.about} (default)" if name == family.default else entry.about, ", ".join(entry.keys))
        for name, entry in family.entries.items()
    ]
    return found + [(name, why, "") for name, why in _broken(family.broken)]


def _broken(plug_ins: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, f"a plug-in that cannot be used: {why}") for name, why in plug_ins.items()]
