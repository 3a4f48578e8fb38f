"""The lists of `fedaudit list`. Imports nothing heavy."""

from collections.abc import Mapping

from fedaudit.adversary import attacks
from fedaudit.adversary.attacks import plugins
from fedaudit.config.registry import FAMILIES, Family
from fedaudit.errors import FedauditError, suggest
from fedaudit.questions import every


def catalogue(what: str) -> list[tuple[str, str, str]]:
    """Name, sentence and keys of each."""
    if what == "attacks":
        ours = attacks.REGISTRY | attacks.SHADOW | attacks.SUBJECT
        named = [(name, entry.about) for name, entry in ours.items()]
        named += [(name, line) for question in every().values() for name, line in question.asked_by.items()]
        named += [(attacks.ATTRIBUTE, attacks.ATTRIBUTE_ABOUT), (attacks.BLIND, attacks.BLIND_ABOUT)]
        found, broken = plugins.plugged()
        named += [(name, plugins.about(make)) for name, make in found.items()] + _broken(broken)
        return [(name, about, "") for name, about in named]
    if what == "questions":
        return [(name, question.about, "") for name, question in every().items()]
    if what not in FAMILIES:
        lists = ["attacks", "questions", *FAMILIES]
        raise FedauditError("unknown-list", f"there is no list of {what!r}", suggest(what, lists))
    return _entries(FAMILIES[what])


def _entries(family: Family) -> list[tuple[str, str, str]]:
    found = [
        (name, f"{entry.about} (default)" if name == family.default else entry.about, ", ".join(entry.keys))
        for name, entry in family.entries.items()
    ]
    return found + [(name, why, "") for name, why in _broken(family.broken)]


def _broken(plug_ins: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, f"a plug-in that cannot be used: {why}") for name, why in plug_ins.items()]
