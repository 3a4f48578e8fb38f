"""What a configuration can say, from schema and registry: a file with every key explained, and lists of all names.

Imports nothing heavy.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedaudit.adversary.attacks import DEFAULTS
from fedaudit.config.attack_registry import ATTACKS, BLIND, BLIND_ABOUT
from fedaudit.config.registry import REGISTRIES, Entry, Options, Registry
from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError, suggest
from fedaudit.questions import OfRounds, Question, every, unusable
from fedaudit.toml import toml

HEAD = """\
# What fedaudit should train and audit: give this file to `fedaudit run`.
# Every key is here with its default. You may delete what you do not change. Keys that are not set are commented out.
"""
NAMING = {registry.section: registry for registry in REGISTRIES.values()}  # sections whose keys depend on a name


def template() -> str:
    """The configuration file that `fedaudit init` writes; read again it is the default configuration."""
    return HEAD + "".join(f"{line}\n" for line in _section(Config, (), Config(), commented=False))


def write(path: Path) -> None:
    """Writes the template, but never over an existing file. (Only exclusive creation guarantees that; a rename would
    not.)"""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError:
        raise FedauditError("exists", f"{path} already exists", "Give another file name, or move that file.") from None
    except OSError as error:
        raise FedauditError("unwritable", f"cannot write {path}: {error.strerror}", "Give another file name.") from None


def _section(kind: type[BaseModel], path: tuple[str, ...], values: BaseModel | None, commented: bool) -> Iterator[str]:
    """Keys first, then sections, as TOML requires."""
    sections = []
    for name, field in kind.model_fields.items():
        value = getattr(values, name) if values is not None else _default(field)
        if not path and name in NAMING:
            sections.append(_naming(NAMING[name]))
        elif (*path, name) in CHOSEN:
            yield _key(name, field, value, commented)
            sections.append(CHOSEN[*path, name]())
        elif inner := _model_in(field.annotation):
            sections.append(_table(inner, (*path, name), value, commented))
        else:
            yield _key(name, field, value, commented)
    for lines in sections:
        yield from lines


def _table(kind: type[BaseModel], path: tuple[str, ...], value: Any, commented: bool) -> Iterator[str]:
    """A section that is off by default is commented out as a whole."""
    off = commented or not isinstance(value, BaseModel)
    yield ""
    yield from _about(kind)
    yield f"{'# ' * off}[{'.'.join(path)}]"
    yield from _section(kind, path, value if isinstance(value, BaseModel) else None, off)


def _naming(registry: Registry) -> Iterator[str]:
    """A section that names an entry: the default one with its keys, and the keys of the others as comments."""
    yield ""
    yield f"# {registry.about}"
    if registry.default is None:
        yield from _each(registry, [*registry.entries.values()])
        return
    names = " | ".join(toml(name) for name in registry.entries)
    yield f"[{registry.section}]"
    yield f"name = {toml(registry.default)}  # `fedaudit list {registry.plural}` explains them; {names}"
    alike: dict[type[Options], list[Entry]] = {}
    for entry in registry.entries.values():
        alike.setdefault(entry.options, []).append(entry)
    chosen = alike.pop(registry.entries[registry.default].options)[0]
    yield from (_key(name, field, _default(field), commented=False) for name, field in chosen.keys.items())
    for entries in alike.values():
        if entries[0].own:
            yield f"# With name = {', '.join(toml(entry.name) for entry in entries)}:"
        yield from (_key(name, field, _default(field), commented=True) for name, field in entries[0].own.items())


def _each(registry: Registry, entries: Sequence[Entry]) -> Iterator[str]:
    """A commented section for every entry, to choose from."""
    for number, entry in enumerate(entries):
        yield from ["#"] * (number > 0)
        yield f"# [[{registry.section}]]"
        yield f"# name = {toml(entry.name)}  # {entry.about}"
        yield from (_key(name, field, _default(field), commented=True) for name, field in entry.keys.items())


def _attacks() -> Iterator[str]:
    """The attacks that have options, and these."""
    yield ""
    yield "# Attacks with options of their own: such sections instead of audit.attacks, one for each attack."
    yield from _each(ATTACKS, [entry for entry in ATTACKS.entries.values() if entry.keys])


def _questions() -> Iterator[str]:
    """The questions that a section asks, with their options."""
    for name, question in every().items():
        if isinstance(question, OfRounds):
            yield from ("", f"# A question: {question.about}", f"# [audit.questions.{name}]")
            fields = question.keys.model_fields.items()
            yield from (_key(key, field, _default(field), commented=True) for key, field in fields)


# Keys of [audit] under which something is chosen, each with options of its own.
CHOSEN: dict[tuple[str, ...], Callable[[], Iterator[str]]] = {
    ("audit", "attacks"): _attacks,
    ("audit", "questions"): _questions,
}


def _about(kind: type[BaseModel]) -> list[str]:
    if kind.__doc__ is None:
        return []
    text = re.sub(r"^\[+.*?\]+ *", "", kind.__doc__.strip())  # the section's own name, which follows anyway
    text = text[:1].upper() + text[1:]
    return [f"# {line.strip()}".rstrip() for line in text.splitlines()]


def _key(name: str, field: FieldInfo, value: Any, commented: bool) -> str:
    comment = explained(field)
    unset = value is None or value is ...
    assignment = f"{'# ' * (commented or unset)}{name} =" + ("" if unset else f" {toml(value)}")
    return f"{assignment}  # {comment}" if comment else assignment


def explained(field: FieldInfo) -> str:
    """What a key means, and what it may hold."""
    return " ".join("; ".join(word for word in (field.description, _allowed(field)) if word).split())


def _allowed(field: FieldInfo) -> str:
    """The words a key may take, and bounds of numbers."""
    for annotation in (field.annotation, *get_args(field.annotation)):
        if get_origin(annotation) is Literal:
            return " | ".join(toml(choice) for choice in get_args(annotation))
    bounds = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    parts = [
        f"{word} {getattr(rule, name)}"
        for name, word in bounds.items()
        for rule in field.metadata
        if getattr(rule, name, None) is not None and getattr(rule, name) < 2**62
    ]
    return ", ".join(parts)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The section behind `Section` or `Section | None`."""
    kinds = [part for part in get_args(annotation) if part is not type(None)] or [annotation]
    optional = get_origin(annotation) in (None, Union, UnionType)
    only = kinds[0] if optional and len(kinds) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _default(field: FieldInfo) -> Any:
    return ... if field.is_required() else field.get_default(call_default_factory=True)


# ------------------------------------------------------------------ the lists of `fedaudit list`


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
        found.append((name, [about, *([f"keys: {', '.join(entry.own)}"] if entry.own else [])]))
    shared = {key for entry in registry.entries.values() for key in set(entry.keys) - set(entry.own)}
    if shared:
        found.append(("every one", [f"takes besides: {', '.join(sorted(shared))}"]))
    return found + _broken(registry.broken)


def _broken(plug_ins: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    return [(name, [f"a plug-in that cannot be used: {why}"]) for name, why in plug_ins.items()]
