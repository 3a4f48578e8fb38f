"""The registry of attacks: their options, their short forms, and what results call them.

An attack is a frozen dataclass (`adversary.attacks.base.BaseAttack`). Those of its fields that `option` makes are its
options. A configuration asks for it in one of three ways:

    "fta-loss"                                           a short form: an attack with certain options
    { name = "fta", signal = "loss", degree = 5 }        its name, and its options
    "fta+signal=loss+degree=5"                           the same in one word

The word is what results, traces and gates call an attack whose options are those of no short form. It holds the options
that differ from their defaults, in the order in which the class has them, so that equal options give equal names. It is
made of letters, digits and `+=~%._-`, and can be read again.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field as DataclassField
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from typing import Any, TypeVar, get_type_hints
from urllib.parse import quote, unquote

from pydantic import Field, create_model

from fedaudit.config.registry import Entry, Make, Options, Registry, plugged_in
from fedaudit.config.section import Section, refused
from fedaudit.errors import FedauditError, suggest

BLIND = "blind"  # the auditor fits this one itself, because it must never see a model; users can ask for it
BLIND_ABOUT = (
    "a classifier that sees the records but no model: whatever it finds is not leaked by training (always run)"
)
STAND_IN = "package.module:name"
_OPTION, _KEY, _TYPE = "option", "key", "type"

Value = TypeVar("Value")


# ------------------------------------------------------------------ options


def option(default: Value, about: str, **limits: Any) -> Value:
    """A field of an attack that a configuration may set: its default, what it means, and limits as pydantic has them
    (ge, le, min_length, ...)."""
    return field(default=default, metadata={_OPTION: Field(default, description=about, **limits)})


def option_of(section: type[Section], key: str) -> Any:
    """A field that is a key of a section of [audit], which says what it is where the attack does not."""
    info = section.model_fields[key]
    where = (section.__doc__ or "").partition("]")[0]
    about = (info.description or "").partition("; not set")[0]
    described = Field(None, description=f"{about}; not set: as {where}] says")
    return field(default=None, metadata={_OPTION: described, _KEY: key, _TYPE: info.rebuild_annotation() | None})


def option_in(section: type[Section], key: str) -> Any:
    """A field that is a key of a section which only attacks set, with the section's own default."""
    info = section.model_fields[key]
    described = Field(info.default, description=info.description)
    return field(default=info.default, metadata={_OPTION: described, _TYPE: info.rebuild_annotation()})


def fields_of(make: Any) -> Mapping[str, "DataclassField[Any]"]:
    """The fields that are options, by their key in TOML; none of what is not a class of attacks."""
    return _fields(make) if isinstance(make, type) else {}


@cache
def _fields(kind: Any) -> Mapping[str, "DataclassField[Any]"]:
    found = fields(kind) if is_dataclass(kind) else ()
    return {each.metadata.get(_KEY, each.name): each for each in found if _OPTION in each.metadata}


def options_of(make: Any) -> type[Options]:
    """The keys that a configuration may set for this attack, and what they may hold."""
    mine = fields_of(make)
    try:
        hints = get_type_hints(make, include_extras=True) if mine else {}
    except (NameError, TypeError) as error:
        what = f"the types of {make.__name__}'s options cannot be read: {error}"
        raise FedauditError("attack-options", what, "Import them at the top of its module.") from error
    kinds = {key: each.metadata.get(_TYPE, hints[each.name]) for key, each in mine.items()}
    keys: Any = {key: (kinds[key], each.metadata[_OPTION]) for key, each in mine.items()}
    return create_model(f"{getattr(make, '__name__', 'Attack')}Options", __base__=Options, **keys)


def arguments(make: Any, options: Options) -> dict[str, Any]:
    """What a class of attacks, or a function that makes one, is called with."""
    mine = fields_of(make)
    return {mine[key].name if key in mine else key: value for key, value in options.arguments().items()}


def set_on(attack: Any) -> dict[str, Any]:
    """The options of an attack that differ from their defaults, by key."""
    mine = {key: (getattr(attack, each.name), each.default) for key, each in fields_of(type(attack)).items()}
    return {key: value for key, (value, default) in mine.items() if value != default}


# ------------------------------------------------------------------ names


EMPTY = "%"  # an empty text in a list; in any other text, % is followed by two digits


def written(name: str, options: Mapping[str, Any]) -> str:
    """A name and options in one word."""
    return name + "".join(f"+{key}={_text(key, value)}" for key, value in options.items())


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value).removesuffix(".0").replace("e+", "e")
    if isinstance(value, str):
        return quote(_checked(value), safe="").replace("~", "%7E")
    if isinstance(value, list | tuple) and not any(isinstance(each, list | tuple) for each in value):
        return "~".join(_text(key, each) or EMPTY for each in value) + "~" * (len(value) < 2)
    what = f"the option {key} of an attack is a {type(value).__name__}"
    raise FedauditError("attack-options", what, "An option is a number, a text, true or false, or a list of these.")


def read_word(word: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of `written`. Values are text, or lists of text: the option knows what they mean."""
    name, *rest = _checked(word).split("+")
    pairs = [each.partition("=") for each in rest]
    if not all(key and sign for key, sign, _ in pairs):
        what = f"{word!r} does not say which option has which value"
        raise FedauditError("attack-options", what, 'Write it like "fta+degree=2", or as { name = "fta", degree = 2 }.')
    return name, {key: _value(text) for key, _, text in pairs}


def _checked(text: str) -> str:
    """Bytes of a command line that are no UTF-8 become characters that no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        what = "the name or an option of an attack is not valid text"
        raise FedauditError("attack-options", what, "Write it in UTF-8.") from None
    return text


def _value(text: str) -> str | list[str]:
    if "~" not in text:
        return unquote(text)
    parts = text.removesuffix("~").split("~") if text != "~" else []
    return ["" if part == EMPTY else unquote(part) for part in parts]


def plain(word: str) -> str:
    """The name without the options."""
    return word.partition("+")[0]


# ------------------------------------------------------------------ the registry


@dataclass(frozen=True)
class Short:
    """A name for an attack with certain options. `brief`: what it does, for the middle of a sentence; `about`, which
    is taken where there is none, may say more."""

    name: str
    about: str
    options: Mapping[str, Any] = field(default_factory=dict)
    brief: str = ""


@dataclass(frozen=True)
class AttackEntry(Entry):
    brief: str = ""
    short: tuple[Short, ...] = ()

    @property
    def names(self) -> tuple[Short, ...]:
        """Its short forms. Without any, it is called as it is registered."""
        return self.short or (Short(self.name, self.about, brief=self.brief),)

    def called(self, options: Mapping[str, Any]) -> str:
        """What results call it, with the options that differ from their defaults."""
        return next((each.name for each in self.short if each.options == options), written(self.name, options))

    def set_by(self, options: Options) -> dict[str, Any]:
        """The options that differ from their defaults."""
        given = {key: (getattr(options, key), info.default) for key, info in self.keys.items()}
        return {key: value for key, (value, default) in given.items() if value != default}


class OwnAttackOptions(Options):
    """The user's own attack is imported when it is made, and its options are checked then."""

    options: dict[str, Any] = Field({}, description="what the class is called with")


class Attacks(Registry):
    """All attacks: ours, those of installed packages, and those of the user."""

    def register(
        self,
        name: str,
        about: str,
        options: type[Options] | None = None,
        *,
        short: Sequence[Short] = (),
        brief: str = "",
    ) -> Callable[[Make], Make]:
        """Decorates a class of attacks. Its options are those of its fields that `option` makes."""

        def register(make: Make) -> Make:
            entry = AttackEntry(name, about, options or options_of(make), make, brief, tuple(short))
            taken = {name for other in self._known() for name in (other.name, *(each.name for each in other.names))}
            if twice := taken & {name, *(each.name for each in entry.names)}:
                raise ValueError(f"there are two attacks {min(twice)!r}: rename one")
            self._enter(entry)
            return make

        return register

    def _known(self) -> list[AttackEntry]:
        return [entry for entry in self._registered.values() if isinstance(entry, AttackEntry)]

    @cached_property
    def broken(self) -> dict[str, str]:
        """Loads the plug-ins: each is a class of attacks, or a function that makes one. Returns those that cannot be
        used, and why."""
        assert self._modules  # ours come first: no plug-in can take a name of theirs
        found, broken = plugged_in(self.plural)
        for name, make in found.items():
            if name in self._registered:  # by its own module
                continue
            about = next(iter((make.__doc__ or "an attack of a plug-in").strip().splitlines())).rstrip(".")
            try:
                self.register(name, about)(make)
            except Exception as error:  # somebody else's package must not stop an audit that does not use it
                broken[name] = f"{type(error).__name__}: {error}"
        return broken

    @cached_property
    def short_forms(self) -> dict[str, tuple[AttackEntry, Short]]:
        """Every name that stands for an attack with its options set, with that attack."""
        mine = [entry for entry in self.entries.values() if isinstance(entry, AttackEntry) and entry.name != STAND_IN]
        return {each.name: (entry, each) for entry in mine for each in entry.names}

    def entry(self, name: str) -> AttackEntry | None:
        found = self.find(name)
        assert found is None or isinstance(found, AttackEntry)
        return found

    def entry_of(self, make: Any) -> AttackEntry | None:
        """What a class is registered as; None: it is not, as the user's own."""
        return next((entry for entry in self._known() if entry.make is make), None)

    def unknown(self, name: str) -> tuple[str, str]:
        if name in self.broken:
            return super().unknown(name)
        known = {*self.short_forms, *self.entries, BLIND} - {STAND_IN}
        return f"unknown attack {name!r}", suggest(name, known)

    def named(self, given: Any) -> Any:
        """One of the attacks in a configuration: a table becomes the word for it, and a word stays as it is."""
        if not isinstance(given, Mapping):
            return given
        name = given.get("name")
        if len(given) == 1 and isinstance(name, str) and name not in self.short_forms and self.entry(name) is None:
            return name  # `blind`, and what asks a question: that it is known is checked when attacks are chosen
        options = self.read(self._at_length(given))
        if isinstance(options, OwnAttackOptions):
            return written(options.name, options.options)
        entry = self.entry(options.name)
        assert entry is not None
        return entry.called(entry.set_by(options))

    def understood(self, word: str) -> tuple[AttackEntry, Options]:
        """The attack and the options that a word stands for; they are checked as those of a table are."""
        name, options = read_word(word)
        if name not in self.short_forms and self.entry(name) is None:
            raise FedauditError(self.unknown_name, *self.unknown(name))
        given = {"name": name, "options": options} if ":" in name else {"name": name, **options}
        found = self.read(self._at_length(given))
        entry = self.entry(name if ":" in name else found.name)
        assert entry is not None
        return entry, found

    def _at_length(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """A short form with further options, as the attack and all of its options."""
        name = given.get("name")
        entry, short = self.short_forms.get(name, (None, None)) if isinstance(name, str) else (None, None)
        if entry is None or short is None:
            return given
        for key, value in short.options.items():
            if given.get(key, value) != value:
                what, todo = f"{name} is {entry.name} with {key} = {value!r}", f'Write name = "{entry.name}" instead.'
                raise refused("attack-key", key, what, todo)
        return {**short.options, **given, "name": entry.name}

    def explained(self, word: str) -> str:
        """What an attack does, in a line; nothing is known of the user's own."""
        return self._said(word, lambda each: each.about)

    def brief(self, word: str) -> str:
        """The same for the middle of a sentence."""
        return self._said(word, lambda each: each.brief or each.about)

    def _said(self, word: str, line: Callable[[AttackEntry | Short], str]) -> str:
        if word in self.short_forms:
            return line(self.short_forms[word][1])
        entry = self._registered.get(plain(word))
        if not isinstance(entry, AttackEntry):
            return ""
        options = ", ".join(word.split("+")[1:]).replace("=", " = ").replace("~", ", ")
        return f"{line(entry)} ({unquote(options)})" if options else line(entry)


ATTACKS = Attacks(
    section="audit.attacks",
    plural="attacks",
    package="fedaudit.adversary.attacks",
    word="attack",
    about="Attacks, each with options of its own.",
    stand_in=STAND_IN,
    unknown_name="unknown-attack",
    wrong_key="attack-key",
)


def called(attack: Any) -> str:
    """What results call an attack: its short form, or its name with the options that differ from their defaults. A
    class that is not registered, as the user's own, is called after itself."""
    entry, options = ATTACKS.entry_of(type(attack)), set_on(attack)
    return entry.called(options) if entry else written(_kebab(type(attack).__name__), options)


def _kebab(name: str) -> str:
    """LowestLoss -> lowest-loss, ByAParty -> by-a-party"""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()
