"""The lists of `fedaudit list`. Imports nothing heavy."""

from collections.abc import Mapping

from fedaudit.adversary.attacks import DEFAULTS
from fedaudit.cli.template import explained
from fedaudit.config.attack_registry import ATTACKS, BLIND, BLIND_ABOUT
from fedaudit.config.registry import REGISTRIES, Entry, Registry
from fedaudit.errors import FedauditError, suggest
from fedaudit.questions import every, unusable
from fedaudit.toml import toml


def catalogue(what: str) -> list[tuple[str, list[str]]]:
    """Each name, with the lines that explain it."""
    if what == "attacks":
        named = [(name, [*_attack(name, entry), *_options(entry)]) for name, entry in ATTACKS.entries.items()]
        named += [(name, [line]) for question in every().values() for name, line in question.asked_by.items()]
        return [*named, (BLIND, [BLIND_ABOUT]), *_broken(ATTACKS.broken)]
    if what == "questions":
        return [*((name, [question.about]) for name, question in every().items()), *_broken(unusable())]
    if what not in REGISTRIES:
        lists = ["attacks", "questions", *REGISTRIES]
        raise FedauditError("unknown-list", f"there is no list of {what!r}", suggest(what, lists))
    return _entries(REGISTRIES[what])


def _attack(name: str, entry: Entry) -> list[str]:
    """What it does, and its short forms; those that are run where none are named are marked."""
    mine = [short for short, (owner, _) in ATTACKS.short_forms.items() if owner is entry]
    marked = [f"{short} (default)" if any(short in names for names in DEFAULTS.values()) else short for short in mine]
    if mine in ([], [name]):
        return [entry.about + "".join(marked).removeprefix(name)]
    return [entry.about, f"short forms: {', '.join(marked)}"]


def _options(entry: Entry) -> list[str]:
    default = {key: f" = {toml(info.default)}" if info.default is not None else "" for key, info in entry.keys.items()}
    return [f"{key}{default[key]}  # {explained(info)}" for key, info in entry.keys.items()]


def _entries(registry: Registry) -> list[tuple[str, list[str]]]:
    found = []
    for name, entry in registry.entries.items():
        about = f"{entry.about} (default)" if name == registry.default else entry.about
        found.append((name, [about, *([f"keys: {', '.join(entry.keys)}"] if entry.keys else [])]))
    return found + _broken(registry.broken)


def _broken(plug_ins: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    return [(name, [f"a plug-in that cannot be used: {why}"]) for name, why in plug_ins.items()]
