"""What a configuration can name: data sets, models and defences, each with options of its own. (Attacks are registered
in the same way, in `config.attack_registry`.)

Each entry is registered by the module that implements it, with its name, the sentence that `fedaudit list` prints, the
options that TOML may set, and the function that makes the thing. There is no other list of names. All modules of a
registry's package are imported, by name, when the first configuration is checked. So these modules must import torch,
scikit-learn and other heavy packages inside functions only.

Packages of others add entries in the same way. An entry point in the group `fedaudit.data`, `fedaudit.models` or
`fedaudit.defences` names the function that is decorated; one that cannot be loaded is reported when it is asked
for. Without any packaging, "package.module:name" names a function anywhere (`config.code`).

An option that is added to an existing entry must be required or default to None. Any other default would be stored with
every run, and an earlier run of the same configuration would no longer have the same hash.
"""

import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Annotated, Any, LiteralString, TypeVar

from pydantic import Field
from pydantic.fields import FieldInfo

from fedaudit.config.section import UNKNOWN_KEY, Section, refused
from fedaudit.errors import suggest

OPTIONS = "options"  # of the user's own: what it is called with

Make = TypeVar("Make", bound=Callable[..., Any])


class Options(Section):
    """The content of a section that names an entry. An entry with its own keys extends this."""

    name: str = Field(description="which one")

    def arguments(self) -> dict[str, Any]:
        """What was set, apart from the name."""
        return {key: value for key, value in self if key != "name" and value is not None}


class DataOptions(Options):
    """The content of [data]: what may be asked of every data set, after it was read."""

    limit: Annotated[int, Field(ge=1)] | None = Field(
        None, description="so many records, drawn at random, the same every time; not set: all"
    )
    balance: bool | None = Field(
        None, description="equally many records of each class, as the rarest has; not set: all"
    )
    standardise: bool | None = Field(
        None, description="every feature gets mean 0 and standard deviation 1 over all records; not set: as it is read"
    )


@dataclass(frozen=True)
class Entry:
    name: str
    about: str  # one sentence, for `fedaudit list`
    options: type[Options]
    make: Callable[..., Any]  # called when the thing is needed, with arguments that depend on the registry

    @property
    def keys(self) -> dict[str, FieldInfo]:
        """All that it takes, without the name."""
        return {key: info for key, info in self.options.model_fields.items() if key != "name"}

    @property
    def own(self) -> dict[str, FieldInfo]:
        """Without those keys that every data set takes."""
        return {key: info for key, info in self.keys.items() if key not in DataOptions.model_fields}


def _order(name: str) -> tuple[bool, str]:
    """Sorts by alphabet, with numbers by size, and the entry for the user's own names last."""
    return ":" in name, re.sub(r"\d+", lambda number: number[0].zfill(4), name)


def plugged_in(plural: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What installed packages offer under `fedaudit.PLURAL`, by name; and why some of it cannot be loaded."""
    found, broken = {}, {}
    for point in entry_points(group=f"fedaudit.{plural}"):
        try:
            found[point.name] = point.load()
        except Exception as error:  # somebody else's package must not stop an audit that does not use it
            broken[point.name] = f"{point.value} cannot be loaded ({type(error).__name__}: {error})"
    return found, broken


@dataclass(frozen=True, eq=False, kw_only=True)
class Registry:
    """The entries that one section of a configuration can name, and how the section is read."""

    section: str  # in TOML
    plural: str  # for `fedaudit list`
    package: str  # whose modules hold the entries
    word: str  # for one of them
    about: str  # the section
    default: str | None = None  # the name if none is given; None: the section is a list, empty by default
    stand_in: str | None = None  # the entry behind every "package.module:name"
    unknown_name: LiteralString = "bad-value"  # the code of that error,
    wrong_key: LiteralString = "bad-value"  # and of a key that is another entry's, or is missing
    always: Mapping[str, Any] = field(default_factory=dict)  # see `written`
    _registered: dict[str, Entry] = field(default_factory=dict, repr=False)

    def register(self, name: str, about: str, options: type[Options] = Options) -> Callable[[Make], Make]:
        """Decorates the function that makes the thing, once for each of its names."""

        def register(make: Make) -> Make:
            self._enter(Entry(name, about, options, make))
            return make

        return register

    def _enter(self, entry: Entry) -> None:
        if entry.name in self._registered:
            raise ValueError(f"there are two entries {entry.name!r} for [{self.section}]: rename one")
        self._registered[entry.name] = entry

    @cached_property
    def _modules(self) -> list[ModuleType]:
        """All modules of the package. Importing them registers their entries."""
        found = pkgutil.iter_modules(import_module(self.package).__path__)
        return [import_module(f"{self.package}.{module.name}") for module in found]

    @cached_property
    def broken(self) -> dict[str, str]:
        """Loads the plug-ins, which registers their entries. Returns those that cannot be used, and why."""
        assert self._modules  # ours come first: no plug-in can take a name of theirs
        found, broken = plugged_in(self.plural)
        lacking = {name: f"it registers no {self.word} {name!r}" for name in found if name not in self._registered}
        return broken | lacking

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All entries by name, in an order that does not depend on the order of imports."""
        assert self.broken is not None
        return {name: self._registered[name] for name in sorted(self._registered, key=_order)}

    def find(self, name: str) -> Entry | None:
        return self.entries.get(self.stand_in if self.stand_in and ":" in name else name)

    def unknown(self, name: str) -> tuple[str, str]:
        """What is wrong with an unknown name, and what to write instead."""
        if name in self.broken:
            return f"the plug-in {name!r} cannot be used: {self.broken[name]}", "Install it again, or leave it out."
        return f"unknown {self.word} {name!r}", suggest(name, self.entries)

    def read(self, given: Any) -> Any:
        """Checks a section, and returns the options of the entry that it names."""
        if not isinstance(given, Mapping):
            return given  # pydantic will say what is wrong with it
        name = given.get("name", self.default)
        if not isinstance(name, str):
            return Options.model_validate({key: given[key] for key in given if key == "name"})
        entry = self.find(name)
        if entry is None:
            raise refused(self.unknown_name, "name", *self.unknown(name))
        kept = {key: value for key, value in given.items() if key in entry.keys or self.always.get(key, ...) != value}
        self._check_keys(name, entry, kept)
        return entry.options.model_validate({**kept, "name": name})

    def _check_keys(self, name: str, entry: Entry, given: Mapping[str, Any]) -> None:
        takes = ", ".join(entry.keys) or "nothing but its name"
        for key in given:
            if key in ("name", *entry.keys):
                continue
            if entry.name == self.stand_in and OPTIONS in entry.keys:
                todo = f"What is yours stands under {OPTIONS}: {OPTIONS} = {{ {key} = ... }}."
                raise refused(UNKNOWN_KEY, str(key), "unknown key", todo)
            if owners := [other.name for other in self.entries.values() if key in other.keys]:
                what = f"{key} belongs to {', '.join(owners)}, not to {name}"
                todo = f"Remove it, or choose another {self.word}: {name} takes {takes}."
                raise refused(self.wrong_key, key, what, todo)
            others = {each: self._whose(each) for other in self.entries.values() for each in other.keys}
            todo = suggest(str(key), entry.options.model_fields, others)
            raise refused(UNKNOWN_KEY, str(key), "unknown key", todo)
        for key, info in entry.keys.items():
            if info.is_required() and key not in given:
                todo = f"Write {key} = ... below its name."
                raise refused(self.wrong_key, key, f"{name} needs {key}", todo)

    def _whose(self, key: str) -> str:
        owners = [other.name for other in self.entries.values() if key in other.keys]
        return f"a key of {', '.join(owners[:3])}{' and others' if len(owners) > 3 else ''}"

    def written(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        """A section as it is stored and hashed.

        The keys of `always` are accepted and written whatever the name, so that runs that were stored with them keep
        the hash of their configuration.
        """
        return {**plain, **{key: value for key, value in self.always.items() if key not in plain}}


DATA = Registry(
    section="data",
    plural="data",
    package="fedaudit.data",
    word="data set",
    about="The data that the parties train on: from `fedaudit list data`, or your own as `package.module:function`.",
    default="baskets",
    stand_in="package.module:function",
    unknown_name="unknown-data",
    always={
        "task": "classification",
        "x_key": "x",
        "y_key": "y",
        "id_key": "id",
        "subject_key": "subject",
        "attribute_key": "attribute",
    },
)
MODELS = Registry(
    section="model",
    plural="models",
    package="fedaudit.learn.models",
    word="model",
    about="The model: one from `fedaudit list models`, or your own as `package.module:factory`.",
    default="mlp",
    stand_in="package.module:factory",
    always={"options": {}},
)
DEFENCES = Registry(
    section="defences",
    plural="defences",
    package="fedaudit.defences",
    word="defence",
    about="Defences against leaks: one such section for each.",
    stand_in="package.module:function",
    wrong_key="defence-key",
)
REGISTRIES = {registry.plural: registry for registry in (DATA, DEFENCES, MODELS)}
