"""The lists of `fedaudit list`. Imports nothing heavy."""

from collections.abc import Mapping

from pydantic.fields import FieldInfo

from fedaudit.adversary.attacks import DEFAULTS
from fedaudit.cli.template import explained
from fedaudit.config.attack_registry import ATTACKS, BLIND, BLIND_ABOUT
from fedaudit.config.registry import REGISTRIES, Entry, Registry
from fedaudit.errors import FedauditError, suggest
from fedaudit.questions import Question, every, unusable
from fedaudit.toml import toml


def catalogue(what: str) -> list[tuple[str, list[str]]]:
    """Each name, with the lines that explain it."""
    if what == "attacks":
        named = [(name, [*_attack(name, entry), *_options(entry.keys)]) for name, entry in ATTACKS.entries.items()]
        named += [(name, [line]) for question in every().values() for name, line in question.asked_by.items()]
        return [*named, (BLIND, [BLIND_ABOUT]), *_broken(ATTACKS.broken)]
    if what == "questions":
        return [*((name, _question(question)) for name, question in every().items()), *_broken(unusable())]
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


def _question(question: Question) -> list[str]:
    """What it asks, how it is asked, the figures that a gate may limit, and its options."""
    how = question.how.replace("NAME", question.name)
    numbered = {metric.name: "@NUMBER" for metric in question.metrics if "{at}" in metric.title}
    figures = [metric.name + numbered.get(metric.name, "") for metric in question.metrics if metric.gated]
    limits = [f"figures to limit by `fedaudit gate`: {', '.join(figures)}"] if figures else []
    return [question.about, how, *limits, *_options(question.keys.model_fields)]


def _options(keys: Mapping[str, FieldInfo]) -> list[str]:
    set_by_default = {key: info.default for key, info in keys.items() if not info.is_required()}
    default = {key: f" = {toml(value)}" for key, value in set_by_default.items() if value is not None}
    return [f"{key}{default.get(key, '')}  # {explained(info)}" for key, info in keys.items()]


def _entries(registry: Registry) -> list[tuple[str, list[str]]]:
    found = []
    for name, entry in registry.entries.items():
        about = f"{entry.about} (default)" if name == registry.default else entry.about
        found.append((name, [about, *([f"keys: {', '.join(entry.keys)}"] if entry.keys else [])]))
    return found + _broken(registry.broken)


def _broken(plug_ins: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    return [(name, [f"a plug-in that cannot be used: {why}"]) for name, why in plug_ins.items()]
