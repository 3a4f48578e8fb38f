"""Converts frozen dataclasses to plain JSON values and back, from their type annotations.

A field is stored under its own name. A field without a default is always written; one with a default only if it differs
from it. So a new field needs one line with a default, and older files can still be read. `fedaudit.types` has the marks
for exceptions. Unknown keys are ignored, because a later version may have written them.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from fedaudit.types import Estimate, Rule

T = TypeVar("T")
MOST = 2**63  # larger whole numbers are refused; many JSON readers could not hold them
BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("of at least", operator.ge),
    "exclusiveMinimum": ("above", operator.gt),
    "exclusiveMaximum": ("below", operator.lt),
}


class UnreadableError(ValueError):
    """A value does not have its declared type. The message says where, and never quotes the value."""

    def __init__(self, needed: str, path: str = ""):
        self.needed, self.path = needed, path
        super().__init__(f"{path.lstrip('.')}: {needed}" if path else needed)

    def inside(self, place: str) -> Self:
        return type(self)(self.needed, place + self.path)


class NotFiniteError(UnreadableError):
    """NaN or infinity, which JSON cannot hold. It becomes null where null is allowed, and is an error elsewhere."""

    def __init__(self, needed: str = "a finite number is needed", path: str = ""):
        super().__init__(needed, path)


@dataclasses.dataclass(frozen=True)
class Stored:
    """How one field is stored in JSON."""

    name: str
    hint: Any
    always: bool  # always written, also if it equals its default
    required: bool  # present in every file, also in old ones
    beside: str | None  # written whenever this other field is
    default: Any  # its JSON form; MISSING where there is none

    @property
    def optional(self) -> bool:
        return self.default is not dataclasses.MISSING


@cache
def stored(kind: type) -> tuple[Stored, ...]:
    """The fields of a dataclass, without the one that is the key under which it is stored."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_stored(field, hints[field.name]) for field in dataclasses.fields(kind) if "key" not in field.metadata)


def _stored(field: dataclasses.Field[Any], hint: Any) -> Stored:
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if default is not dataclasses.MISSING:
        default = _write(hint, default)
    always = "always" in field.metadata or default is dataclasses.MISSING
    required = always and "later" not in field.metadata
    return Stored(field.name, hint, always, required, field.metadata.get("with"), default)


@cache
def key(kind: Any) -> str | None:
    """The field that a mapping's key stands for, if what the mapping holds has one."""
    if not dataclasses.is_dataclass(kind):
        return None
    return next((field.name for field in dataclasses.fields(kind) if "key" in field.metadata), None)


def bare(hint: Any) -> Any:
    """The type without its annotations for the schema."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def but_none(hint: Any) -> Any:
    """X for `X | None`; None for everything else."""
    if get_origin(hint) not in (Union, UnionType):
        return None
    (rest,) = (arg for arg in get_args(hint) if arg is not NoneType)
    return rest


def _or_none(convert: Callable[[Any, Any], Any], hint: Any, value: Any) -> Any:
    """Converts, with None for None and for a number that is not finite. A NaN deeper inside is still an error."""
    try:
        return None if value is None else convert(hint, value)
    except NotFiniteError as error:
        if error.path:
            raise
        return None


# ------------------------------------------------------------------ writing


def plain(value: Any) -> dict[str, Any]:
    """A dataclass as JSON values. NaN and infinity become null, and an estimate then says why."""
    written: dict[str, Any] = _write(type(value), value)
    return written


def finite(estimate: Estimate) -> Estimate:
    """The estimate without numbers that JSON cannot hold. Without a value there is no interval either."""
    odd = [name for name in ("value", "low", "high") if not _is_finite(getattr(estimate, name))]
    if not odd:
        return estimate
    names = {"value": "the value", "low": "the lower end", "high": "the upper end"}
    reason = estimate.reason or f"{' and '.join(names[name] for name in odd)} came out NaN or infinite"
    low, high = (None if "value" in odd or name in odd else getattr(estimate, name) for name in ("low", "high"))
    value = None if "value" in odd else estimate.value
    return dataclasses.replace(estimate, value=value, low=low, high=high, reason=reason)


def _is_finite(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def _write(hint: Any, value: Any) -> Any:
    hint = bare(hint)
    if dataclasses.is_dataclass(hint):
        return _write_fields(finite(value) if isinstance(value, Estimate) else value)
    if hint is float:
        return _finite_number(value)
    if hint in (str, int, bool):
        return hint(value)
    if hint is Any:
        return _write_anything(value)
    if rest := but_none(hint):
        return _or_none(_write, rest, value)
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Literal:
        return value
    if kind is Sequence:
        return [_write(arguments[0], item) for item in value]
    if kind is tuple:
        return [_write(each, item) for each, item in zip(arguments, value, strict=True)]
    if kind is Mapping:
        return {str(name): _write(arguments[1], item) for name, item in value.items()}
    raise TypeError(f"{hint} has no JSON form")


def _write_fields(value: Any) -> dict[str, Any]:
    written: dict[str, Any] = {}
    kind: Any = type(value)
    for field in stored(kind):
        try:
            one = _write(field.hint, getattr(value, field.name))
        except NotFiniteError as error:
            raise error.inside(f".{field.name}") from None
        if field.always or field.beside in written or one != field.default:
            written[field.name] = one
    return written


def _write_anything(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _write_anything(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_write_anything(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finite_number(value: Any) -> float:
    if not math.isfinite(number := float(value)):
        raise NotFiniteError
    return number


# ------------------------------------------------------------------ reading


def read(kind: type[T], value: Any) -> T:
    """Reads what `plain` wrote. `UnreadableError` says what does not have its declared type."""
    found: T = _read(kind, value)
    return found


def _read(hint: Any, value: Any) -> Any:
    if get_origin(hint) is Annotated:
        return _within(hint.__metadata__, _read(bare(hint), value))
    if hint is float:
        return _read_number(value)
    if hint is str:
        return _checked(value, isinstance(value, str), "text")
    if hint is bool:
        return _checked(value, isinstance(value, bool), "true or false")
    if hint is int:
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST
        return _checked(value, whole, "a whole number")
    if hint is Any:
        return value
    if rest := but_none(hint):
        return _or_none(_read, rest, value)
    if dataclasses.is_dataclass(hint):
        return _read_fields(hint, value)
    return _read_many(get_origin(hint), get_args(hint), value)


def _within(notes: Sequence[Any], value: Any) -> Any:
    """Checks that a number lies within its bounds. Other rules of the schema are not checked here."""
    for note in notes:
        if isinstance(note, Rule) and note.keyword in BOUNDS and value is not None:
            name, holds = BOUNDS[note.keyword]
            _checked(value, holds(value, note.value), f"a number {name} {note.value}")
    return value


def _read_many(kind: Any, arguments: tuple[Any, ...], value: Any) -> Any:
    if kind is Literal:
        return _checked(value, value in arguments, f"one of {', '.join(map(str, arguments))}")
    if kind is Mapping:
        _checked(value, isinstance(value, dict), "an object")
        return {name: _read_item(arguments[1], item, name) for name, item in value.items()}
    _checked(value, isinstance(value, list), "a list")
    if kind is tuple:
        _checked(value, len(value) == len(arguments), f"a list of {len(arguments)}")
        return tuple(_read(each, item) for each, item in zip(arguments, value, strict=True))
    found = []
    for index, item in enumerate(value):
        try:
            found.append(_read(arguments[0], item))
        except UnreadableError as error:
            raise error.inside(f"[{index}]") from None
    return tuple(found)


def _read_item(hint: Any, item: Any, name: str) -> Any:
    named = key(bare(hint))
    try:
        return _read_fields(bare(hint), item, {named: name}) if named else _read(hint, item)
    except UnreadableError as error:
        raise error.inside(f"[{name!r}]") from None


def _read_fields(kind: Any, value: Any, known: Mapping[str, Any] | None = None) -> Any:
    _checked(value, isinstance(value, dict), "an object")
    found = dict(known or {})
    for field in stored(kind):
        try:
            if field.name in value:
                found[field.name] = _read(field.hint, value[field.name])
            elif not field.optional:
                raise UnreadableError("it is missing")
        except UnreadableError as error:
            raise error.inside(f".{field.name}") from None
    return kind(**found)


def _read_number(value: Any) -> float:
    _checked(value, isinstance(value, int | float) and not isinstance(value, bool), "a number")
    try:
        return _finite_number(value)
    except OverflowError:  # a whole number that no float can hold
        raise NotFiniteError from None


def _checked(value: Any, fits: bool, needed: str) -> Any:
    if not fits:
        raise UnreadableError(f"{needed} is needed")
    return value
